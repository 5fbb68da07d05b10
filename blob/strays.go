package blob

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// A repair deletes bytes only where it has just read the same ones at another place that the index names
// for their address. What an entry of the index loses else, since they are not what its key says or since
// the entry goes, is looked at by its own hash: it is given to the chunk of that address if that has none
// that are sound, or becomes a chunk that is not used.

// spot is where bytes are.
type spot struct {
	packed bool
	id     uint64
}

// stray are bytes that an entry names which has another address.
type stray struct {
	owner   chunkKey
	at      spot
	is      [2]chunkKey // what they can be: a leaf and, if they are those of a node, that
	discard bool
	done    bool
}

// whatIs gives what bytes can be, of which that is the content, with that address.
func (c *checker) whatIs(at spot, p []byte, addr Address) (is [2]chunkKey) {
	is[0] = chunkKey{addr: addr}
	is[1] = is[0]
	if len(p) > 4 && !c.s.isFrame(at.packed, at.id) {
		if _, err := parseNode(p, p[4], c.s.options.shape()); err == nil {
			is[1].level = p[4]
		}
	}
	return is
}

// isSound tells whether a chunk has the bytes of its address.
func (c *checker) isSound(k *chunkKey, e *entry) bool {
	p, err := c.s.content(e)
	if err != nil || c.s.options.sum(p) != k.addr {
		return false
	}
	if k.level > 0 {
		_, err = parseNode(p, k.level, c.s.options.shape())
	}
	return err == nil && (k.level == 0 || e.stored == 0)
}

// named calls fn with each chunk that something names: nodes that can be read, records, open Writers, and
// the caller's roots.
func (c *checker) named(fn func(k chunkKey) error) error {
	err := c.each(nil, nil, func(k chunkKey, _ entry) error {
		if k.level == 0 {
			return nil
		}
		n, damage, err := c.loadNode(&k)
		if damage != nil || err != nil {
			return nil
		}
		for i := range n.count() {
			child, _ := n.child(i)
			if err := fn(child); err != nil {
				return err
			}
		}
		return nil
	}, nil)
	for _, each := range []func(func(k chunkKey) error) error{c.ingested, c.leased, c.s.held} {
		if err == nil {
			err = each(fn)
		}
	}
	if err != nil {
		return err
	}
	return c.roots(func(k chunkKey, _ int64) error { return fn(k) })
}

// lacking tells whether something is named that the index does not have, or has without bytes: then a
// repair reads all leaves, for it may be there under a wrong key.
func (c *checker) lacking() (lacks bool, err error) {
	for from := []byte(nil); ; {
		n, err := c.chunks(from)
		if err == nil {
			err = c.named(func(k chunkKey) error {
				if _, ok, in := n.find(&k); in && !ok {
					lacks = true
					return errEnough
				}
				return nil
			})
		}
		if err == nil {
			err = c.each(from, n.to, func(_ chunkKey, e entry) error {
				lacks = lacks || e.lost() && !e.dead()
				return nil
			}, nil)
		}
		if lacks || err != nil && !errors.Is(err, errEnough) {
			return lacks, unlessEnough(err)
		}
		if from = n.to; from == nil {
			return false, nil
		}
	}
}

func unlessEnough(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// rehome gives the strays that were found to the chunks whose they are, where those have no others and
// something names them, or the index has them. What is to be discarded of the rest is taken off its chunk.
func (c *checker) rehome() error {
	strays := c.strays
	c.strays = nil
	for moved := len(strays) > 0; moved; {
		moved = false
		wanted := map[chunkKey]bool{}
		for i := range strays {
			for _, k := range strays[i].is {
				wanted[k] = false
			}
		}
		err := c.named(func(k chunkKey) error {
			if _, is := wanted[k]; is {
				wanted[k] = true
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i := range strays {
			if s := &strays[i]; !s.done {
				if err := c.rehomeOne(s, wanted); err != nil {
					return err
				}
				moved = moved || s.done
			}
		}
	}
	for i := range strays {
		if s := &strays[i]; s.discard && !s.done {
			if err := c.takeAway(&s.owner, s.at); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checker) rehomeOne(s *stray, wanted map[chunkKey]bool) error {
	for _, k := range []*chunkKey{&s.is[1], &s.is[0]} {
		e, ok, err := c.s.lookup(k)
		if err != nil {
			return err
		}
		if ok && c.isSound(k, &e) || !ok && !wanted[*k] {
			continue
		}
		s.done = true
		if s.owner == s.is[0] { // it is what its key says, and a node too
			at, err := c.copyOf(s.at)
			if err != nil {
				return err
			}
			return c.give(k, at)
		}
		if err := c.takeAway(&s.owner, s.at); err != nil {
			return err
		}
		return c.give(k, s.at)
	}
	return nil
}

// copyOf copies bytes.
func (c *checker) copyOf(at spot) (spot, error) {
	b := c.s.bytesBucket(at.packed)
	p := bytes.Clone(b.Get(binary.BigEndian.AppendUint64(nil, at.id)))
	return c.putCopy(at, p, c.s.isFrame(at.packed, at.id))
}

// putCopy puts bytes into the bucket in which those at a place are, for a frame or not.
func (c *checker) putCopy(at spot, v []byte, frame bool) (spot, error) {
	id, err := c.s.freshID(at.packed, frame)
	if err == nil {
		err = c.s.bytesBucket(at.packed).Put(binary.BigEndian.AppendUint64(nil, id), v)
	}
	return spot{at.packed, id}, err
}

// readAt gives bytes that are stored, and their content. What should be a frame and is not is put elsewhere before, where it is
// its own content: a chunk of its own, whatever it was.
func (c *checker) readAt(at spot) (_ spot, v, p []byte, err error) {
	b := c.s.bytesBucket(at.packed)
	v = b.Get(binary.BigEndian.AppendUint64(nil, at.id))
	p, ok := c.s.contentAt(at, v, nil)
	if ok || v == nil {
		return at, v, p, c.s.tx.Err()
	}
	v = bytes.Clone(v)
	to, err := c.putCopy(at, v, false)
	if err == nil {
		err = b.Delete(binary.BigEndian.AppendUint64(nil, at.id))
	}
	return to, v, v, err
}

// takeAway takes bytes off a chunk that has them and is not what they are. They are looked at again.
func (c *checker) takeAway(k *chunkKey, at spot) error {
	e, ok, err := c.s.lookup(k)
	if err != nil || !ok || e.lost() || (spot{e.packed, e.id}) != at {
		return err
	}
	if c.again && e.dead() {
		return c.takeOff(k, &e)
	}
	c.loose = append(c.loose, at)
	return c.s.lose(k, &e)
}

// give gives bytes to the chunk whose they are. Those that it had are looked at again.
func (c *checker) give(k *chunkKey, at spot) error {
	e, ok, err := c.s.lookup(k)
	if err != nil {
		return err
	}
	if ok && !e.lost() {
		c.loose = append(c.loose, spot{e.packed, e.id})
	}
	at, v, p, err := c.readAt(at)
	if err != nil {
		return err
	}
	c.given++
	c.s.entryAt(&e, at, v, len(p))
	if err := c.s.putEntry(k, &e); err != nil || ok {
		return err
	}
	return c.s.setMark(k, true) // until its users are counted
}

// tidy looks at bytes that have lost the chunk that had them, unless another one names them.
func (c *checker) tidy() error {
	for len(c.loose) > 0 {
		loose := map[spot]bool{}
		for _, at := range c.loose {
			loose[at] = true
		}
		list := c.loose
		c.loose = nil
		err := c.each(nil, nil, func(_ chunkKey, e entry) error {
			delete(loose, spot{e.packed, e.id})
			return nil
		}, nil)
		if err != nil {
			return err
		}
		for _, at := range list {
			if loose[at] {
				delete(loose, at)
				if err := c.adopt(at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// adopt finds out whose bytes are that the index does not name.
func (c *checker) adopt(at spot) error {
	at, v, p, err := c.readAt(at)
	b := c.s.bytesBucket(at.packed)
	id := binary.BigEndian.AppendUint64(nil, at.id)
	switch {
	case err != nil || v == nil:
		return err
	case len(v) > maxStored, len(p) > maxChunk:
		return b.Delete(id) // no chunk of any store
	}
	is := c.whatIs(at, p, c.s.options.sum(p))
	k := is[1]
	e, ok, err := c.s.lookup(&k)
	if err == nil && !ok && k.level > 0 {
		// What is not a node of anything here is kept as bytes: as a node it would name what is not there.
		var whole bool
		if whole, err = c.isWhole(&k, p); err == nil && !whole {
			k = is[0]
			e, ok, err = c.s.lookup(&k)
		}
	}
	if err != nil {
		return err
	}
	if ok && (spot{e.packed, e.id}) != at && c.isSound(&k, &e) {
		return b.Delete(id) // the same bytes are there
	}
	return c.give(&k, at)
}

// isWhole tells whether a node is named, or names nothing that is not there.
func (c *checker) isWhole(k *chunkKey, p []byte) (bool, error) {
	n, err := parseNode(p, k.level, c.s.options.shape())
	if err != nil {
		return false, nil
	}
	whole := true
	for i := 0; whole && i < n.count(); i++ {
		child, _ := n.child(i)
		if whole, err = c.known(&child); err != nil {
			return false, err
		}
	}
	if whole {
		return true, nil
	}
	err = c.named(func(named chunkKey) error {
		if named == *k {
			whole = true
			return errEnough
		}
		return nil
	})
	return whole, unlessEnough(err)
}

// takeOff removes an entry of the index, and its mark. Its bytes are looked at again.
func (c *checker) takeOff(k *chunkKey, e *entry) error {
	if !e.lost() {
		c.loose = append(c.loose, spot{e.packed, e.id})
	}
	key := k.encode()
	if err := c.s.unindex(key[:]); err != nil {
		return err
	}
	if err := c.s.forgetDigest(k); err != nil {
		return err
	}
	return c.s.setMark(k, false)
}

// freshID is an id of a bucket that is not in use, whatever its counter says, for a frame or not.
func (s *Store) freshID(isPacked, frame bool) (uint64, error) {
	b := s.bytesBucket(isPacked)
	if last, _ := b.Cursor().Last(); len(last) == 8 {
		if id := binary.BigEndian.Uint64(last); id > b.Sequence() {
			if err := b.SetSequence(id); err != nil {
				return 0, err
			}
		}
	}
	return s.takeID(isPacked, frame)
}
