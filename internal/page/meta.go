package page

import (
	"fmt"
	"hash/fnv"
	"math/bits"
)

// This file encodes and decodes metas. slots.go says which of the two wins.

const (
	magic   uint32 = 0xED0CDAED
	version uint32 = 2
)

// Meta is a v2 meta: what one of the two slots says of the whole database.
type Meta struct {
	PageSize  uint32
	Flags     uint32
	Root      ID     // root page of the root bucket
	Sequence  uint64 // sequence of the root bucket
	Freelist  ID     // freelist page, or NoFreelist
	HighWater ID     // first page number never used
	Label     Label  // v2 txid
}

// EncodeMeta fills page buf, of at least ExtensionOffset bytes, as meta page
// slot (0 or 1) holding m. ext is copied after the meta; the rest of the page
// becomes zero.
func EncodeMeta(buf []byte, slot ID, m Meta, ext []byte) {
	clear(buf)
	EncodeHeader(buf, Header{ID: slot, Flags: FlagMeta})
	b := buf[HeaderSize:]
	order.PutUint32(b[0:], magic)
	order.PutUint32(b[4:], version)
	order.PutUint32(b[8:], m.PageSize)
	order.PutUint32(b[12:], m.Flags)
	order.PutUint64(b[16:], uint64(m.Root))
	order.PutUint64(b[24:], m.Sequence)
	order.PutUint64(b[32:], uint64(m.Freelist))
	order.PutUint64(b[40:], uint64(m.HighWater))
	order.PutUint64(b[48:], uint64(m.Label))
	order.PutUint64(b[56:], metaSum(b))
	copy(buf[ExtensionOffset:], ext)
}

// DecodeMeta reads a meta page. As bbolt does, it looks at the meta alone and
// not at the page header before it. Errors: ErrInvalid (not a database, or one
// written in the other byte order), ErrVersionMismatch, ErrChecksum.
func DecodeMeta(buf []byte) (Meta, error) {
	if len(buf) < ExtensionOffset {
		return Meta{}, ErrInvalid
	}
	b := buf[HeaderSize:]
	switch order.Uint32(b) {
	case magic:
	case bits.ReverseBytes32(magic):
		return Meta{}, fmt.Errorf("%w: written on a machine of the other byte order", ErrInvalid)
	default:
		return Meta{}, ErrInvalid
	}
	if order.Uint32(b[4:]) != version {
		return Meta{}, ErrVersionMismatch
	}
	if order.Uint64(b[56:]) != metaSum(b) {
		return Meta{}, ErrChecksum
	}
	return MetaFields(buf), nil
}

// MetaFields reads the numbers of a meta page, of at least ExtensionOffset bytes, and
// checks nothing: not even that there is a meta.
func MetaFields(buf []byte) Meta {
	b := buf[HeaderSize:ExtensionOffset]
	return Meta{
		PageSize:  order.Uint32(b[8:]),
		Flags:     order.Uint32(b[12:]),
		Root:      ID(order.Uint64(b[16:])),
		Sequence:  order.Uint64(b[24:]),
		Freelist:  ID(order.Uint64(b[32:])),
		HighWater: ID(order.Uint64(b[40:])),
		Label:     Label(order.Uint64(b[48:])),
	}
}

// Extension is the bytes of a meta page after the v2 meta.
func Extension(buf []byte) []byte {
	if len(buf) <= ExtensionOffset {
		return nil
	}
	return buf[ExtensionOffset:]
}

// metaSum is FNV-64a over the meta's fields before its checksum.
func metaSum(meta []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(meta[:56])
	return h.Sum64()
}

// MaxLabel is the highest label that is believed, and that is given.
const MaxLabel Label = 1<<63 - 1

// Check tells whether the numbers of a valid meta can be those of a database
// in a file of size bytes.
func (m Meta) Check(size int64) error {
	ps := uint64(m.PageSize)
	if ps < MinPageSize || ps > MaxPageSize {
		return Corruptf(0, "the meta page gives a page size of %d bytes", ps)
	}
	if m.Label > MaxLabel {
		return Corruptf(0, "the meta page gives %d as transaction id", uint64(m.Label))
	}
	if m.HighWater < FirstDataPage+1 {
		return Corruptf(0, "the meta page says that the database has %d pages", m.HighWater)
	}
	if over, need := bits.Mul64(uint64(m.HighWater), ps); over != 0 || size < 0 || need > uint64(size) {
		return Corruptf(0, "the meta page says that the database has %d pages of %d bytes, but the file has %d bytes: it was truncated", m.HighWater, ps, size)
	}
	if m.Root < FirstDataPage || m.Root >= m.HighWater {
		return Corruptf(0, "the meta page names page %d as the root, which is not a page of this database: they are %d to %d", m.Root, FirstDataPage, m.HighWater-1)
	}
	if m.Freelist != NoFreelist && (m.Freelist < FirstDataPage || m.Freelist >= m.HighWater) {
		return Corruptf(0, "the meta page names page %d as the freelist, which is not a page of this database: they are %d to %d", m.Freelist, FirstDataPage, m.HighWater-1)
	}
	return nil
}

// Slots are the two metas of a file with the order between them.
type Slots struct {
	Meta [2]Meta
	Err  [2]error // why a slot does not count
}

// DecodeSlots reads both metas, given as pages 0 and 1.
func DecodeSlots(slot0, slot1 []byte) Slots {
	var s Slots
	s.Meta[0], s.Err[0] = DecodeMeta(slot0)
	s.Meta[1], s.Err[1] = DecodeMeta(slot1)
	return s
}

// Best is the slot that bbolt opens: the valid one with the higher label, slot
// 0 on a tie. The error is slot 0's if neither is valid.
func (s Slots) Best() (int, error) {
	switch {
	case s.Err[0] != nil && s.Err[1] != nil:
		return 0, s.Err[0]
	case s.Err[0] != nil:
		return 1, nil
	case s.Err[1] != nil || s.Meta[0].Label >= s.Meta[1].Label:
		return 0, nil
	}
	return 1, nil
}

// Next gives the slot that the next commit writes, the one that bbolt would
// not open, and its label: the smallest above the other's with the slot's parity.
//
// After a meta page was copied over the other both are the same. Then the one that
// stays, should the write be torn, is to be the one whose label has not its
// parity: no extension counts there, so what was gone back from does not
// return.
func (s Slots) Next() (slot int, label Label) {
	best, err := s.Best()
	if err != nil {
		return 0, 0
	}
	if s.Err[0] == nil && s.Err[1] == nil && s.Meta[0] == s.Meta[1] {
		best = int(1 - s.Meta[0].Label%2)
	}
	slot = 1 - best
	label = s.Meta[best].Label + 1
	if uint64(label)%2 != uint64(slot) {
		label++
	}
	return slot, label
}
