package blob

// settle finds out what the index has of entry i, and what becomes of it.
func (s *Store) settle(b *batch, i int) error {
	p := &b.entries[i]
	e, found, err := s.probe(&p.key)
	if err != nil {
		return err
	}
	came := *p
	lost := false
	if found && came.state&hasBytes != 0 {
		if lost, err = s.unsound(&p.key, &e); err != nil {
			return err
		}
	}
	if lost {
		// Its bytes are stored, and the children of a node have it as a parent already. What there was of it, if anything,
		// may be another chunk's: a repair finds out.
		p.settleAs(&e)
		p.heal(true)
		p.state = came.state | p.state&(wasDead|inLarge|inRecent)
		p.id, p.length, p.stored = came.id, came.length, came.stored
		if err := p.checkCounts(); err != nil {
			return err
		}
		if came.key.level > 0 {
			return s.giveUpChildren(b.arena[came.at:came.at+came.length], came.key.level, true)
		}
		return nil
	}
	if found {
		p.settleAs(&e)
	} else if p.state&hasBytes == 0 {
		return missing(&p.key)
	}
	p.heal(found)
	if err := p.checkCounts(); err != nil {
		return err
	}
	switch {
	case found:
	case p.parents == 0 && p.users == 0:
		p.state |= unchanged
		if err := s.forgetDigest(&p.key); err != nil { // of a blob that was deleted before it was stored
			return err
		}
	default:
		return nil
	}
	if came.state&hasBytes == 0 {
		return nil
	}
	// The bytes that came with it are not needed.
	if came.state&appended != 0 {
		return s.deleteBytes(came.state&packed != 0, came.id)
	}
	if came.key.level > 0 {
		return s.giveUpChildren(b.arena[came.at:came.at+came.length], came.key.level, found)
	}
	return nil
}

// settleAs takes over what the index has.
func (p *pending) settleAs(e *entry) {
	p.state = p.state&^packed | stored
	if e.packed {
		p.state |= packed
	}
	if p.state |= inLarge; e.recent {
		p.state ^= inLarge | inRecent
	}
	if e.dead() {
		p.state |= wasDead
	}
	if p.parents == 0 && p.users == 0 && p.leased == 0 {
		p.state |= unchanged
	}
	p.id, p.length, p.stored = e.id, int32(e.length), int32(e.stored)
	p.parents += int64(e.parents)
	p.users += int64(e.users)
	p.leased += int32(e.leased)
}

// checkCounts is the error of a settled entry whose counts no sound store has. One that is stored must be
// believed when it is read.
func (p *pending) checkCounts() error {
	switch {
	case p.parents < 0 || p.leased < 0 || p.users < int64(p.leased):
		return corruptf("chunk %v has fewer than no parents or users", p.key.addr)
	case p.parents > maxCount || p.users > maxCount || p.leased > maxLeased:
		return corruptf("chunk %v would have %d parents and %d users, %d of them leases: more than any has", p.key.addr, p.parents, p.users, p.leased)
	}
	return nil
}

// giveUpChildren takes back that a node is a parent. stored: it is there already, and names them.
func (s *Store) giveUpChildren(bytes []byte, level uint8, stored bool) error {
	n, err := parseNode(bytes, level, s.options.shape())
	if err != nil {
		return err
	}
	for i := range n.count() {
		k, _ := n.child(i)
		if err := s.adjust(&k, -1, 0); err != nil {
			return err
		}
		if stored {
			s.batch.find(&k).state |= claimed
		}
	}
	return nil
}
