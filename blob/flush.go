package blob

import (
	"encoding/binary"
	"fmt"

	"holdfast"
	"holdfast/internal/bridge"
)

// flush brings what was gathered to the buckets.
func (s *Store) flush() error {
	if s.failed != nil {
		return s.failed
	}
	b := s.batch
	if b == nil || len(b.entries) == 0 {
		s.withdraw()
		return nil
	}
	if err := s.flushBatch(b); err != nil {
		return s.fail(fmt.Errorf("bringing chunks to the store: %w", err))
	}
	b.clear()
	s.withdraw()
	return nil
}

// maxAsked is how many short leaves are all looked up in the index before their bytes are stored, at most.
const maxAsked = 4 << 10

// flushBatch settles nodes from the highest level down, because a node that is not stored gives up its children, then leaves, and
// brings the index up to date in the order of its keys. It stores the bytes of chunks after it has settled them, but those of many
// short leaves before: then it settles leaves while it goes through the index to change it, and goes through it once.
func (s *Store) flushBatch(b *batch) error {
	leaves := b.unspilled()
	many := len(leaves) > maxAsked
	if many {
		if err := s.spill(b); err != nil {
			return err
		}
	}
	for level := b.maxLevel; level > 0; level-- {
		for _, o := range b.sorted(level, level) {
			if err := s.settle(b, int(o.at)); err != nil {
				return err
			}
		}
	}
	// A node has a page for itself, which is read for it.
	bridge.SetWide(s.packs, false)
	if err := s.pack(b, b.nodes); err != nil {
		return err
	}
	bridge.SetWide(s.packs, true)
	if !many {
		for _, o := range b.sorted(0, 0) {
			if err := s.settle(b, int(o.at)); err != nil {
				return err
			}
		}
		if err := s.pack(b, leaves); err != nil {
			return err
		}
	}
	return s.updateIndex(b, many)
}

// updateIndex brings the index up to date. settles: it settles leaves, too.
func (s *Store) updateIndex(b *batch, settles bool) error {
	list := b.sorted(0, maxLevel)
	u := s.indexing(b)
	for _, o := range list {
		p := &b.entries[o.at]
		if settles && p.key.level == 0 {
			if err := s.settle(b, int(o.at)); err != nil {
				return err
			}
		}
		if err := u.write(p); err != nil {
			return err
		}
	}
	return u.end()
}

// unspilled lists the short leaves that were gathered, and whose bytes are not stored yet.
func (b *batch) unspilled() []int32 {
	list := b.list[:0]
	for i := b.spilled; i < len(b.entries); i++ {
		if p := &b.entries[i]; p.key.level == 0 && p.state&(hasBytes|appended) == hasBytes {
			list = append(list, int32(i))
		}
	}
	b.list = list
	return list
}

// makeRoom empties the arena.
func (s *Store) makeRoom(b *batch) error {
	if err := s.spill(b); err != nil {
		return s.fail(fmt.Errorf("bringing chunks to the store: %w", err))
	}
	if len(b.arena) > maxArena/2 { // nodes
		return s.flush()
	}
	return nil
}

// spill stores the bytes of the short leaves that were gathered. The index is brought up to
// date only by the flush: the more keys come to it at a time, the more of them come to the
// same page of it. Nor is it asked for each leaf, unless some of those asked for are there:
// what turns out to be there is deleted again by the flush, as a long leaf is. A node needs its
// bytes until it is settled, and its children before them, so it stays.
func (s *Store) spill(b *batch) error {
	list := b.unspilled()
	if err := s.skipStored(b, list); err != nil {
		return err
	}
	if err := s.pack(b, list); err != nil {
		return err
	}
	b.spilled = len(b.entries)
	kept := b.arena[:0]
	for _, i := range b.nodes {
		p := &b.entries[i]
		at := len(kept)
		kept = append(kept, b.arena[p.at:p.at+p.length]...)
		p.at = int32(at)
	}
	b.arena = kept
	return nil
}

// skipStored finds those of the short leaves in the list that are stored already.
func (s *Store) skipStored(b *batch, list []int32) error {
	step := (len(list) + maxProbed - 1) / maxProbed
	for i := 0; i < len(list); i += step {
		switch found, err := s.skip(&b.entries[list[i]]); {
		case err != nil:
			return err
		case found && step > 1:
			return s.skipAll(b)
		}
	}
	return nil
}

// skipAll is skipStored for all short leaves that were gathered, in the order of the index.
func (s *Store) skipAll(b *batch) error {
	for _, o := range b.sortedFrom(b.spilled, 0, 0) {
		if _, err := s.skip(&b.entries[o.at]); err != nil {
			return err
		}
	}
	return nil
}

// skip lets go of the bytes of a leaf that is stored already.
func (s *Store) skip(p *pending) (bool, error) {
	if p.state&(hasBytes|appended) != hasBytes {
		return false, nil
	}
	e, found, err := s.probe(&p.key)
	if err != nil || !found {
		return false, err
	}
	if lost, err := s.unsound(&p.key, &e); err != nil || lost {
		return false, err
	}
	p.state &^= hasBytes
	return true, nil
}

// pack stores the bytes of the new chunks in the list, which is in the order of their arrival:
// first those that get pages of their own, then those that share pages, which must follow each
// other for that.
func (s *Store) pack(b *batch, list []int32) error {
	s.frameGathered(b, list)
	id := s.packs.Sequence()
	begin := id
	small := false
	put := s.isFew(b, list)
	for _, i := range list {
		p := &b.entries[i]
		if p.state&(hasBytes|appended|stored|unchanged) != hasBytes {
			continue
		}
		if p.size() < s.pageSize {
			small = true
		} else if err := s.packOne(b, p, &id, put); err != nil {
			return err
		}
	}
	for i := 0; small && i < len(list); i++ {
		p := &b.entries[list[i]]
		if p.state&(hasBytes|appended|stored|unchanged) == hasBytes && p.size() < s.pageSize {
			if err := s.packOne(b, p, &id, put); err != nil {
				return err
			}
		}
	}
	if id == begin {
		return nil
	}
	return s.packs.SetSequence(id)
}

// maxPut is up to how many bytes are put and not appended: Append begins to write before the commit, and so waits until what was
// committed before is durable.
const maxPut = 16 << 10

// isFew tells whether the chunks in the list have at most maxPut bytes.
func (s *Store) isFew(b *batch, list []int32) bool {
	if len(b.nodes) > 0 { // nodes get pages of their own by Append
		return false
	}
	n := int32(0)
	for _, i := range list {
		if n += b.entries[i].length; n > maxPut {
			return false
		}
	}
	return true
}

func (s *Store) packOne(b *batch, p *pending, id *uint64, put bool) (err error) {
	if *id, err = s.idAfter(*id, true, p.stored > 0); err != nil {
		return err
	}
	binary.BigEndian.PutUint64(s.key[:8], *id)
	from := b.arena
	if p.stored > 0 {
		from = b.frames
	}
	v := from[p.at : int(p.at)+p.size()]
	if put {
		if _, used := s.packs.AppendValue(s.value[:0], s.key[:8]); used { // the counter of ids is damaged; Append has the same error
			return holdfast.ErrUnordered
		}
		err = s.packs.Put(s.key[:8], b.keep(v))
	} else {
		err = s.packs.Append(s.key[:8], v)
	}
	if err != nil {
		return err
	}
	p.id = *id
	p.state |= appended
	return nil
}
