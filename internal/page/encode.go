package page

import (
	"fmt"
	"hash/crc32"
)

// Encoder lays out a branch or leaf page in a buffer: header, element array,
// then keys and values packed after it, as bbolt does. The caller computes
// the size beforehand (see LeafSize and BranchSize) and adds exactly count
// elements in ascending key order.
type Encoder struct {
	buf  []byte
	leaf bool
	elem int // next element header
	data int // next key
	id   ID
}

// NewLeaf begins leaf page id in buf. overflow is the number of pages after
// the first that buf covers. Use id 0 for an inline page.
func NewLeaf(buf []byte, id ID, count int, overflow uint32) Encoder {
	return newEncoder(buf, Header{ID: id, Flags: FlagLeaf, Overflow: overflow}, count)
}

// NewBranch begins branch page id in buf.
func NewBranch(buf []byte, id ID, count int, overflow uint32) Encoder {
	return newEncoder(buf, Header{ID: id, Flags: FlagBranch, Overflow: overflow}, count)
}

func newEncoder(buf []byte, h Header, count int) Encoder {
	if count > MaxCount {
		panic(fmt.Sprintf("page %d would have %d elements", h.ID, count)) // keys would be lost without a word
	}
	h.Count = uint16(count)
	EncodeHeader(buf, h)
	return Encoder{
		buf:  buf,
		leaf: h.Flags == FlagLeaf,
		elem: HeaderSize,
		data: HeaderSize + int(h.Count)*LeafElementSize,
		id:   h.ID,
	}
}

// Leaf adds an element to a leaf page.
func (e *Encoder) Leaf(flags uint32, key, value []byte) {
	h := e.buf[e.elem : e.elem+LeafElementSize]
	order.PutUint32(h, flags)
	order.PutUint32(h[4:], uint32(e.data-e.elem))
	order.PutUint32(h[8:], uint32(len(key)))
	order.PutUint32(h[12:], uint32(len(value)))
	e.elem += LeafElementSize
	e.data += copy(e.buf[e.data:], key)
	e.data += copy(e.buf[e.data:], value)
}

// Branch adds an element to a branch page.
func (e *Encoder) Branch(key []byte, child ID) {
	h := e.buf[e.elem : e.elem+BranchElementSize]
	order.PutUint32(h, uint32(e.data-e.elem))
	order.PutUint32(h[4:], uint32(len(key)))
	order.PutUint64(h[8:], uint64(child))
	e.elem += BranchElementSize
	e.data += copy(e.buf[e.data:], key)
}

// CopyBranch makes buf, which is as long as from's run, a copy of the branch page
// from as page id. SetChild then changes children, and Finish ends it.
func CopyBranch(buf []byte, id ID, from Page) (Encoder, error) {
	e := Encoder{buf: buf, data: HeaderSize + from.count*BranchElementSize, id: id}
	for i := range from.count {
		at := HeaderSize + i*BranchElementSize
		keyEnd := uint64(at) + uint64(order.Uint32(from.buf[at:])) + uint64(order.Uint32(from.buf[at+4:]))
		if keyEnd > uint64(len(from.buf)) {
			return e, from.elementError(i)
		}
		e.data = max(e.data, int(keyEnd))
	}
	copy(buf[:e.data], from.buf) // not its seal, which may be being made
	order.PutUint64(buf, uint64(id))
	return e, nil
}

// SetChild changes the child that element i of a copied branch page names.
func (e *Encoder) SetChild(i int, child ID) {
	order.PutUint64(e.buf[HeaderSize+i*BranchElementSize+8:], uint64(child))
}

// CopyLeaf makes buf, which is as long as from's run, a copy of the leaf page from as
// page id. end is where its content ends, see Packed. SetValue then changes values,
// and End ends it.
func CopyLeaf(buf []byte, id ID, from Page, end int) Encoder {
	copy(buf[:end], from.buf) // not its seal, which may be being made
	order.PutUint64(buf, uint64(id))
	return Encoder{buf: buf, leaf: true, data: end, id: id}
}

// SetValue changes the value of element i of a copied leaf page to one of the same
// length. The error is that the page it was copied from has been changed from outside.
func (e *Encoder) SetValue(i int, value []byte) error {
	_, mid, end, _, ok := LeafBounds(e.buf[:e.data], HeaderSize+i*LeafElementSize)
	if !ok || end-mid != uint64(len(value)) {
		return Corruptf(e.id, "a value of %d bytes takes the place of another length", len(value))
	}
	copy(e.buf[mid:end], value)
	return nil
}

// Finish ends the page: what lies past its content becomes zero, and if seal is
// set, at its end a seal, unless it is an inline page. Nothing may change the page
// any more.
func (e *Encoder) Finish(seal bool) {
	finish(e.buf, e.data, e.id, seal && e.id != 0)
}

// End is Finish without a seal. It returns where the content ends, for Seal.
func (e *Encoder) End() int {
	clear(e.buf[e.data:])
	return e.data
}

// finish is where an encoder of a page run ends that is not sealed later: run is
// complete up to end. Only this, and End and Seal, use the bytes past the content.
func finish(run []byte, end int, id ID, seal bool) {
	clear(run[end:])
	if seal {
		Seal(run, id, end)
	}
}

// LoneLeafPages is how many pages a leaf takes whose one element has key and value.
func LoneLeafPages(key, value []byte, pageSize int) uint64 {
	size := uint64(HeaderSize+LeafElementSize) + uint64(len(key)) + uint64(len(value))
	return (size + uint64(pageSize) - 1) / uint64(pageSize)
}

// LoneLeaf lays out the leaf run of so many pages at page id, whose one element has key and
// value, around the value: it appends what is before the value to head, and makes the end
// of tail, from the index that it returns on, what is after it. The last bytes of tail,
// a page of zeros, may be any; all of it is zero but for these afterwards. sealed: there is
// a seal, if that has room.
func LoneLeaf(head, tail []byte, id ID, key, value []byte, pages uint64, sealed bool) ([]byte, int) {
	var b [HeaderSize + LeafElementSize]byte
	EncodeHeader(b[:], Header{ID: id, Flags: FlagLeaf, Count: 1, Overflow: uint32(pages - 1)})
	h := b[HeaderSize:]
	order.PutUint32(h[4:], LeafElementSize)
	order.PutUint32(h[8:], uint32(len(key)))
	order.PutUint32(h[12:], uint32(len(value)))
	head = append(append(head, b[:]...), key...)

	size := len(tail)
	clear(tail[size-SealSize:])
	padding := int(pages*uint64(size) - uint64(len(head)) - uint64(len(value)))
	if sealed && padding >= SealSize {
		sum := crc32.Update(crc32.Update(0, castagnoli, head), castagnoli, value)
		sum = crc32.Update(sum, castagnoli, tail[size-padding:size-SealSize])
		putSeal(tail[size-SealSize:], sumWithID(sum, id))
	}
	return head, size - padding
}

// LeafSize is the bytes that one leaf element takes.
func LeafSize(key, value []byte) int { return LeafElementSize + len(key) + len(value) }

// BranchSize is the bytes that one branch element takes.
func BranchSize(key []byte) int { return BranchElementSize + len(key) }
