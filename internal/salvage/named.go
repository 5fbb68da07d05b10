package salvage

import (
	"encoding/binary"

	"holdfast/internal/page"
)

// Offsets of the fields of a meta in its page.
const (
	metaMagic    = page.HeaderSize
	metaVersion  = metaMagic + 4
	metaPageSize = metaMagic + 8
	metaRoot     = metaMagic + 16
	metaSequence = metaMagic + 24
	metaFreelist = metaMagic + 32
	metaHigh     = metaMagic + 40
	metaLabel    = metaMagic + 48
)

// maxMended bounds the page numbers that are tried in a meta.
const maxMended = 1 << 24

// mend gives a meta back that is not whole but for some fields of which the value is known, or one of which
// all that can be are tried: its checksum then holds, which tells that it is what was written. other is the
// other meta.
func (s *source) mend(meta, other []byte) (mended []byte, ok bool) {
	b := append([]byte(nil), meta...)
	try := func(at int, v uint64) bool {
		binary.NativeEndian.PutUint64(b[at:], v)
		_, err := page.DecodeMeta(b)
		return err == nil
	}
	u64 := func(from []byte, at int) uint64 { return binary.NativeEndian.Uint64(from[at:]) }
	s.putConstants(b)
	if _, err := page.DecodeMeta(b); err == nil {
		return b, true
	}
	if try(metaSequence, 0) {
		return b, true
	}
	binary.NativeEndian.PutUint64(b[metaSequence:], u64(meta, metaSequence))
	label := u64(other, metaLabel)
	for at, values := range map[int][]uint64{
		metaLabel:    {label - 2, label - 1, label, label + 1, label + 2},
		metaFreelist: {uint64(page.NoFreelist)},
		metaPageSize: {uint64(uint32(s.pageSize))}, // and no flags
	} {
		for _, v := range values {
			if try(at, v) {
				return b, true
			}
		}
		binary.NativeEndian.PutUint64(b[at:], u64(meta, at))
	}
	for _, at := range []int{metaRoot, metaFreelist, metaHigh} {
		for id := range min(uint64(s.size/s.pageSize), maxMended) + 1 {
			if try(at, id) {
				return b, true
			}
		}
		binary.NativeEndian.PutUint64(b[at:], u64(meta, at))
	}
	return nil, false
}

// putConstants writes the fields into a meta that are the same in all of a file.
func (s *source) putConstants(meta []byte) {
	copy(meta[metaMagic:], magicAndVersion())
	binary.NativeEndian.PutUint32(meta[metaPageSize:], uint32(s.pageSize))
}

// magicAndVersion is how each meta begins.
func magicAndVersion() []byte {
	meta := make([]byte, page.ExtensionOffset)
	page.EncodeMeta(meta, 0, page.Meta{}, nil)
	return meta[metaMagic:metaPageSize]
}

// unsure is the state that the fields of meta page slot give, which is not whole; false if they
// cannot be those of one.
func (s *source) unsure(slot int, meta []byte) (st state, ok bool) {
	m := page.MetaFields(meta)
	pages := page.ID(s.size / s.pageSize)
	if m.Root < page.FirstDataPage || m.Root >= pages {
		return st, false
	}
	st = state{slot: slot, unsure: true, root: m.Root, number: uint64(m.Label)}
	if m.HighWater > m.Root && m.HighWater <= pages {
		st.highWater = m.HighWater
	}
	if m.Label > page.MaxLabel {
		st.number = 0
	}
	return st, true
}

// stateIsWhole tells whether all that the root of a state reaches can be used, and is its own.
func (s *salvage) stateIsWhole(st state) (bool, error) {
	search := newSearch(s)
	defer search.end()
	n, err := search.tree(st.root)
	if err != nil || n.stale+n.damaged > 0 || !n.tops && n.keys > 0 {
		return false, err
	}
	c := candidate{id: st.root, node: n}
	r, err := search.reach(&c)
	return err == nil && r.twice == 0, err
}

// mendAll mends the metas that are not whole and can be mended, and tells of it.
func (s *source) mendAll(metas [2][]byte) (slots page.Slots, notes []string) {
	slots = page.DecodeSlots(metas[0], metas[1]).OfSize(s.pageSize)
	for slot, err := range slots.Err {
		if err == nil {
			continue
		}
		if b, ok := s.mend(metas[slot], metas[1-slot]); ok {
			copy(metas[slot], b)
			notes = append(notes, notef("meta page %d is damaged (%v), but its checksum tells what was in it", slot, err))
		}
	}
	return page.DecodeSlots(metas[0], metas[1]).OfSize(s.pageSize), notes
}

// unsureStates puts the states before those of found, or after them, that metas name which are not whole.
func (s *source) unsureStates(metas [2][]byte, slots page.Slots, found []state) []state {
	var more []state
	for slot, err := range slots.Err {
		if st, ok := s.unsure(slot, metas[slot]); err != nil && ok {
			more = append(more, st)
		}
	}
	switch {
	case len(more) == 2 && !adjacent(more[0].number, more[1].number):
		return found // which of them is the newer nothing tells
	case len(more) == 2 && more[1].number > more[0].number:
		more[0], more[1] = more[1], more[0]
	case len(more) == 1 && len(found) > 0:
		label := uint64(slots.Meta[found[0].slot].Label)
		if !adjacent(label, more[0].number) {
			return found
		}
		if more[0].number < label {
			return append(found, more...)
		}
	}
	return append(more, found...)
}

// adjacent tells whether two labels can be those of the metas of one file.
func adjacent(a, b uint64) bool {
	const most = 2 // by which a commit raises it
	return max(a, b)-min(a, b) <= most
}
