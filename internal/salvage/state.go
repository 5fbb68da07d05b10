package salvage

import (
	"errors"

	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/space"
)

// state is one that the metas name.
type state struct {
	slot      int
	trailing  bool // named by the slot's extension and not by its meta
	number    uint64
	root      page.ID
	highWater page.ID             // 0: not known
	unsure    bool                // its meta is not whole
	free      func(*source) error // marks its free pages; nil if nothing tells them
	how       string              // tells them
}

// ErrNone is returned for a file in which there is nothing that looks like a database.
var ErrNone = errors.New("no page of a database is in the file")

// states are those that the metas name, the newest first, with what is odd about them, and
// what of that is not a loss.
func (s *source) states() (found []state, notes, mended []string) {
	metas, errs := page.ReadMetas(s.r, s.pageSize, int(s.pageSize))
	for slot, err := range errs {
		if err != nil {
			notes = append(notes, notef("meta page %d cannot be read: %v", slot, err))
		}
	}
	slots, mended := s.mendAll(metas)
	var exts [2]*extension.Extension
	for slot, err := range slots.Err {
		if err != nil {
			notes = append(notes, notef("meta page %d is not whole: %v", slot, err))
			continue
		}
		if ext, err := extension.Decode(metas[slot]); err == nil && uint64(ext.Tx) <= uint64(page.MaxLabel) && (ext.Trailing == nil || ext.Trailing.Base < ext.Tx) {
			exts[slot] = ext
		} else if err != nil && (!errors.Is(err, extension.ErrNone) || !isZero(metas[slot][page.ExtensionOffset:])) {
			notes = append(notes, notef("what Holdfast wrote into meta page %d cannot be read: %v", slot, err))
		}
	}
	best, err := slots.Best()
	if err != nil {
		return s.unsureStates(metas, slots, found), notes, mended
	}
	s.sealing = exts[0] != nil || exts[1] != nil
	if note := s.believe(slots, best, &exts); note != "" {
		notes = append(notes, note)
	}
	for _, slot := range []int{best, 1 - best} {
		if slots.Err[slot] == nil {
			more, note := s.slotStates(slot, slots.Meta[slot], exts[slot], exts[1-slot])
			found = append(found, more...)
			if note != "" && slot == best {
				notes = append(notes, note)
			}
		}
	}
	return s.unsureStates(metas, slots, found), notes, mended
}

// believe forgets extensions that do not count, as an opening does. The note says what speaks against them.
func (s *source) believe(slots page.Slots, best int, exts *[2]*extension.Extension) (note string) {
	had := exts[best] != nil
	label := slots.Meta[best].Label
	highest := slots.Err[1-best] != nil || slots.Meta[1-best].Label < label
	if !highest || int(label%2) != best {
		*exts = [2]*extension.Extension{}
		if had {
			note = notef("meta page %d holds the meta of the other one, as \"bbolt surgery revert-meta-page\" leaves it, or as damage does: a newer state may have been there", best)
		}
	}
	if exts[0] != nil && exts[1] != nil && exts[0].Database != exts[1].Database {
		*exts = [2]*extension.Extension{}
	}
	return note
}

// slotStates are the states of one slot, the newer first.
func (s *source) slotStates(slot int, m page.Meta, own, other *extension.Extension) (found []state, note string) {
	plain := state{slot: slot, number: uint64(m.Label), root: m.Root, highWater: m.HighWater}
	switch {
	case own != nil && own.Trailing != nil:
		t := own.Trailing
		plain.number = uint64(t.Base)
		plain.record(other, t.Base)
		newer := state{slot: slot, trailing: true, number: uint64(own.Tx), root: t.Root, highWater: t.HighWater}
		newer.record(own, own.Tx)
		if s.isWhole(newer.highWater, t) {
			found = append(found, newer)
		} else {
			note = notef("the last flush, of transaction %d, is not whole: the state before it counts", own.Tx)
		}
	case own != nil:
		plain.number = uint64(own.Tx)
		plain.record(own, own.Tx)
	}
	if m.Freelist != page.NoFreelist {
		record := plain.free
		plain.free = func(s *source) error {
			if record != nil && record(s) == nil {
				return nil
			}
			s.forgetFree()
			return s.markFreelist(m.Freelist)
		}
		if plain.how == "" {
			plain.how = "the freelist"
		}
	}
	return append(found, plain), note
}

// record takes over what ext says of free pages, if it is of state tx.
func (st *state) record(ext *extension.Extension, tx page.TxID) {
	if ext == nil || ext.Free == nil || ext.Tx != tx {
		return
	}
	st.how = "Holdfast's record"
	st.free = func(s *source) error { return s.markRecord(ext, st.highWater) }
}

// maxWritten bounds the pages that an extension lists, in bytes.
const maxWritten = 64 << 20

var errNotWhole = errors.New("not whole")

// isWhole tells whether all pages that a trailing extension lists are there.
func (s *source) isWhole(highWater page.ID, t *extension.Trailing) bool {
	h, err := extension.NewHasher(t.Key)
	if err != nil {
		return false
	}
	var sum extension.Hash
	left := int64(maxWritten)
	buf := make([]byte, s.pageSize)
	err = extension.Extents(t.Written, highWater, func(e page.Extent) error {
		if e.Start < page.FirstDataPage || e.N > uint64(left/s.pageSize) {
			return errNotWhole
		}
		left -= int64(e.N) * s.pageSize
		for id := e.Start; id < e.End(); id++ {
			if uint64(id) > uint64(s.size/s.pageSize) {
				return errNotWhole
			}
			if err := s.bytesAt(id, s.at(id), buf); err != nil {
				return err
			}
			h.Pages(&sum, id, buf, int(s.pageSize), len(buf))
		}
		return nil
	})
	return err == nil && sum == t.Hash
}

// forgetFree takes back what was marked as free.
func (s *source) forgetFree() {
	for i := range s.marks {
		s.marks[i] &^= markFree
	}
}

// markFreelist marks the pages that freelist page id lists, and its own.
func (s *source) markFreelist(id page.ID) error {
	n, err := s.eachFree(id, func(p page.ID) { s.mark(p, 1, markFree) })
	if err == nil {
		s.mark(id, n, markFree)
	}
	return err
}

// eachFree calls visit with each page that freelist page id lists. pages are its own.
func (s *source) eachFree(id page.ID, visit func(page.ID)) (pages uint64, err error) {
	if !s.exists(id) {
		return 0, page.NoPage(id, s.pages)
	}
	first := make([]byte, s.pageSize)
	if err := s.bytesAt(id, s.at(id), first); err != nil {
		return 0, err
	}
	h := page.DecodeHeader(first)
	n := uint64(h.Overflow) + 1
	if h.ID != id || h.Flags != page.FlagFreelist || n > uint64(s.pages-id) || n > 2+uint64(s.pages)*8/uint64(s.pageSize) {
		return 0, page.Corruptf(id, "it is not a freelist page")
	}
	if !s.mayRead(n) {
		return 0, errTooMuch(id)
	}
	run := make([]byte, int64(n)*s.pageSize)
	if err := s.bytesAt(id, s.at(id), run); err != nil {
		return 0, err
	}
	if page.CheckSeal(run, id) == page.WrongSeal {
		return 0, page.Corruptf(id, "its checksum does not match its content")
	}
	count, numbers := page.FreelistBody(run)
	if count > uint64(len(numbers))/8 {
		return 0, page.Corruptf(id, "a freelist of %d numbers does not fit into its %d pages", count, n)
	}
	last := page.ID(0)
	for i := range count {
		p := page.FreelistNumber(numbers, i)
		if p < page.FirstDataPage || p <= last {
			return 0, page.Corruptf(id, "the freelist is not in ascending order")
		}
		last = p
		visit(p)
	}
	return n, nil
}

// markRecord marks the pages that an extension records as free in a state with that
// high-water mark, and those of the record.
func (s *source) markRecord(ext *extension.Extension, highWater page.ID) error {
	h, err := extension.NewHasher(ext.Key)
	if err != nil {
		return err
	}
	set, count, free := space.Load(s.pages), uint64(0), ext.Free
	put := func(e page.Extent) error {
		if count += e.N; e.Start >= s.pages { // the file was cut short
			return nil
		}
		return set.Put(s.inside(e))
	}
	take := func(e page.Extent) error {
		if count -= e.N; e.Start >= s.pages {
			return nil
		}
		return set.Take(s.inside(e))
	}
	if free.Snapshot.Pages > 0 {
		b, err := s.readRecord(free.Snapshot, highWater, h, extension.OfSnapshot)
		if err == nil {
			err = extension.Snapshot(b, highWater, put, func(set []byte) error { return putBits(set, highWater, put) })
		}
		if err != nil {
			return err
		}
	}
	for _, l := range free.Logs {
		b, err := s.readRecord(l, highWater, h, extension.OfLog)
		if err == nil {
			err = extension.Log(b, int(s.pageSize), highWater, take, put)
		}
		if err != nil {
			return err
		}
	}
	if err := extension.Changes(free.Inline, highWater, take, put); err != nil {
		return err
	}
	if count != free.Count {
		return page.Corruptf(0, "%d free pages are recorded, and there should be %d", count, free.Count)
	}
	for e := range set.Space().Free() {
		s.mark(e.Start, e.N, markFree)
	}
	s.mark(free.Snapshot.Start, uint64(free.Snapshot.Pages), markFree)
	for _, l := range free.Logs {
		s.mark(l.Start, uint64(l.Pages), markFree)
	}
	for _, l := range ext.Lists {
		s.mark(l.Start, l.N, markFree)
	}
	return nil
}

// inside is the part of an extent that the file has, in which it begins.
func (s *source) inside(e page.Extent) page.Extent {
	return page.Extent{Start: e.Start, N: min(e.N, uint64(s.pages-e.Start))}
}

// putBits calls put for the runs of pages whose bits are set.
func putBits(set []byte, highWater page.ID, put func(page.Extent) error) error {
	return extension.Bits(set, func(e page.Extent) error {
		if e.End() > highWater {
			return page.Corruptf(e.Start, "it is recorded as free, and is not a page of this database, whose last page is %d", highWater-1)
		}
		return put(e)
	})
}

// readRecord reads a run of the record of free pages whose checksum holds.
func (s *source) readRecord(r extension.Run, highWater page.ID, h *extension.Hasher, of extension.Purpose) ([]byte, error) {
	if err := r.Check(highWater, int(s.pageSize)); err != nil {
		return nil, err
	}
	if int64(r.Bytes) > s.size || uint64(r.Start) > uint64(s.size/s.pageSize) {
		return nil, page.Corruptf(r.Start, "a record of free pages lies beyond the end of the file")
	}
	b := make([]byte, r.Bytes)
	if err := s.bytesAt(r.Start, s.at(r.Start), b); err != nil {
		return nil, err
	}
	if h.Sum(of, r.Start, b) != r.Hash {
		return nil, page.Corruptf(r.Start, "the checksum of a record of free pages does not hold")
	}
	return b, nil
}
