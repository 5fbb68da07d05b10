package page

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
)

// This file reads the headers and elements of pages, by themselves and in the image of a file.

var order = binary.NativeEndian

// Header is the 16 bytes that every page begins with.
type Header struct {
	ID       ID
	Flags    uint16
	Count    uint16 // elements
	Overflow uint32 // pages after this one that belong to it
}

// DecodeHeader reads a header from the first HeaderSize bytes of b, which must
// be that long. It checks nothing: the caller knows what it expects.
func DecodeHeader(b []byte) Header {
	_ = b[HeaderSize-1]
	return Header{
		ID:       ID(order.Uint64(b[0:])),
		Flags:    order.Uint16(b[8:]),
		Count:    order.Uint16(b[10:]),
		Overflow: order.Uint32(b[12:]),
	}
}

// EncodeHeader writes h to the first HeaderSize bytes of b.
func EncodeHeader(b []byte, h Header) {
	_ = b[HeaderSize-1]
	order.PutUint64(b[0:], uint64(h.ID))
	order.PutUint16(b[8:], h.Flags)
	order.PutUint16(b[10:], h.Count)
	order.PutUint32(b[12:], h.Overflow)
}

// TypeName names a page's type by its flags: "branch", "leaf", "meta",
// "freelist" or "unknown<xx>".
func TypeName(flags uint16) string {
	switch flags {
	case FlagBranch:
		return "branch"
	case FlagLeaf:
		return "leaf"
	case FlagMeta:
		return "meta"
	case FlagFreelist:
		return "freelist"
	}
	const hex = "0123456789abcdef"
	return "unknown<" + string([]byte{hex[flags>>12], hex[flags>>8&15], hex[flags>>4&15], hex[flags&15]}) + ">"
}

// Page is a checked view of one branch or leaf page with its overflow pages,
// or of the leaf that an inline bucket's value holds. The zero Page is not
// valid. A Page is immutable and may be shared between goroutines; it is valid
// as long as the bytes below it.
type Page struct {
	buf        []byte // the whole run
	count      int
	leaf       bool
	unverified bool
	overflow   uint32 // as it was when the run was cut out: the file may be changed from outside
}

// Parse checks run as the branch or leaf page id: its number, its type, and
// that the element array lies inside. What the elements point to is checked
// when they are read. An inline page is parsed with the id 0.
func Parse(run []byte, id ID) (Page, error) {
	p, err := parse(run, id)
	if err == nil {
		p.overflow = order.Uint32(run[12:])
	}
	return p, err
}

// parse is Parse without overflow.
func parse(run []byte, id ID) (Page, error) {
	if len(run) < HeaderSize {
		return Page{}, Corruptf(id, "page of %d bytes is shorter than its header", len(run))
	}
	h := DecodeHeader(run)
	if h.ID != id {
		return Page{}, wrongNumber(id, h)
	}
	if h.Flags != FlagLeaf && h.Flags != FlagBranch {
		return Page{}, Corruptf(id, "has unexpected type/flags: %x (%s), want branch or leaf", h.Flags, TypeName(h.Flags))
	}
	room := len(run)
	if HeaderSize+int(h.Count)*LeafElementSize > room {
		return Page{}, Corruptf(id, "%d elements do not fit into %d bytes", h.Count, len(run))
	}
	return Page{buf: run, count: int(h.Count), leaf: h.Flags == FlagLeaf}, nil
}

// ID is the page's number; 0 for an inline page.
func (p Page) ID() ID { return ID(order.Uint64(p.buf)) }

// IsLeaf tells a leaf from a branch.
func (p Page) IsLeaf() bool { return p.leaf }

// Count is the number of elements.
func (p Page) Count() int { return p.count }

// Overflow is the number of pages after the first that belong to this one.
func (p Page) Overflow() uint32 { return p.overflow }

// Pages is the number of pages of the run: 1 + Overflow.
func (p Page) Pages() uint64 { return uint64(p.Overflow()) + 1 }

// Bytes is the whole run.
func (p Page) Bytes() []byte { return p.buf }

// Valid tells a parsed page from the zero Page.
func (p Page) Valid() bool { return p.buf != nil }

// Element is one decoded element of a leaf page. Key and Value point into the
// page and are limited to their own capacity.
type Element struct {
	Flags uint32
	Key   []byte
	Value []byte
}

// IsBucket tells whether the value is a bucket header.
func (e Element) IsBucket() bool { return e.Flags&BucketFlag != 0 }

func (p Page) elementError(i int) error {
	return Corruptf(p.ID(), "element %d of %d lies outside its page", i, p.count)
}

// Leaf decodes element i of a leaf page. i must be in [0, Count).
func (p Page) Leaf(i int) (Element, error) {
	at := HeaderSize + i*LeafElementSize
	h := p.buf[at : at+LeafElementSize]
	pos, ksize, vsize := uint64(order.Uint32(h[4:])), uint64(order.Uint32(h[8:])), uint64(order.Uint32(h[12:]))
	start := uint64(at) + pos
	mid := start + ksize
	end := mid + vsize
	if end > uint64(len(p.buf)) {
		return Element{}, p.elementError(i)
	}
	return Element{Flags: order.Uint32(h), Key: p.buf[start:mid:mid], Value: p.buf[mid:end:end]}, nil
}

// LeafAt is Leaf with results that fit into registers, for scans. ok is false
// if i is out of range or the element lies outside of its page.
func (p Page) LeafAt(i int) (key, value []byte, flags uint32, ok bool) {
	at := HeaderSize + i*LeafElementSize
	if uint(i) >= uint(p.count) || at+LeafElementSize > len(p.buf) {
		return nil, nil, 0, false
	}
	h := p.buf[at : at+LeafElementSize]
	start := uint64(at) + uint64(order.Uint32(h[4:]))
	mid := start + uint64(order.Uint32(h[8:]))
	end := mid + uint64(order.Uint32(h[12:]))
	if end > uint64(len(p.buf)) {
		return nil, nil, 0, false
	}
	return p.buf[start:mid:mid], p.buf[mid:end:end], order.Uint32(h), true
}

// LeafBounds tells where the key and the value of a leaf element are whose 16-byte header begins at a byte of the leaf: at
// start, mid and before end. ok is false if that is outside. It is small enough to be inlined.
func LeafBounds(leaf []byte, at int) (start, mid, end uint64, flags uint32, ok bool) {
	h := leaf[at:][:LeafElementSize]
	start = uint64(at) + uint64(order.Uint32(h[4:]))
	mid = start + uint64(order.Uint32(h[8:]))
	end = mid + uint64(order.Uint32(h[12:]))
	return start, mid, end, order.Uint32(h), end <= uint64(len(leaf))
}

// LeafBoundsOf is LeafBounds of a header that stands at a byte of a leaf of some length, or did when it was copied.
func LeafBoundsOf(header []byte, at, length int) (start, mid, end uint64, flags uint32, ok bool) {
	h := header[:LeafElementSize]
	start = uint64(at) + uint64(order.Uint32(h[4:]))
	mid = start + uint64(order.Uint32(h[8:]))
	end = mid + uint64(order.Uint32(h[12:]))
	return start, mid, end, order.Uint32(h), end <= uint64(length)
}

// Branch decodes element i of a branch page. i must be in [0, Count).
func (p Page) Branch(i int) (key []byte, child ID, err error) {
	at := HeaderSize + i*BranchElementSize
	h := p.buf[at : at+BranchElementSize]
	start := uint64(at) + uint64(order.Uint32(h))
	end := start + uint64(order.Uint32(h[4:]))
	if end > uint64(len(p.buf)) {
		return nil, 0, p.elementError(i)
	}
	return p.buf[start:end:end], ID(order.Uint64(h[8:])), nil
}

// Child is the child that element i of a branch page names. i must be in
// [0, Count).
func (p Page) Child(i int) ID {
	return ID(order.Uint64(p.buf[HeaderSize+i*BranchElementSize+8:]))
}

// keyField is where pos and ksize stand in an element: after the flags in a
// leaf, at the beginning in a branch.
func (p Page) keyField() int {
	if p.leaf {
		return 4
	}
	return 0
}

// Key is the key of element i of a leaf or branch page. i must be in [0, Count).
func (p Page) Key(i int) ([]byte, error) {
	at := HeaderSize + i*LeafElementSize
	field := p.buf[at+p.keyField():][:8]
	start := uint64(at) + uint64(order.Uint32(field))
	end := start + uint64(order.Uint32(field[4:]))
	if end > uint64(len(p.buf)) {
		return nil, p.elementError(i)
	}
	return p.buf[start:end:end], nil
}

// Search finds the first element whose key is not less than key, Count if
// there is none, and tells whether it is equal. It is correct if the keys
// ascend; on a damaged page it ends all the same, with some index.
//
// Keys are compared by their first eight bytes as one number, and as a whole only where these are
// the same: the call of bytes.Compare took as long as the rest of a step.
func (p Page) Search(key []byte) (index int, exact bool, err error) {
	lo, hi := 0, p.count
	buf, field := p.buf, p.keyField()
	var head uint64
	long := len(key) >= 8
	if long {
		head = binary.BigEndian.Uint64(key)
	}
	for lo < hi { // Key, spelled out: this loop is where reads spend their time
		mid := int(uint(lo+hi) >> 1)
		at := HeaderSize + mid*LeafElementSize
		f := buf[at+field:][:8]
		start := uint64(at) + uint64(order.Uint32(f))
		end := start + uint64(order.Uint32(f[4:]))
		if end > uint64(len(buf)) {
			return 0, false, p.elementError(mid)
		}
		k := buf[start:end]
		if long && len(k) >= 8 {
			if h := binary.BigEndian.Uint64(k); h < head {
				lo = mid + 1
				continue
			} else if h > head {
				hi = mid
				continue
			}
		}
		switch c := bytes.Compare(k, key); {
		case c == 0:
			return mid, true, nil
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false, nil
}

// Span is where key and value of element i lie, in bytes from the beginning of
// the run. i must be in [0, Count).
func (p Page) Span(i int) (from, to int, err error) {
	key, err := p.Key(i)
	if err != nil {
		return 0, 0, err
	}
	length := len(key)
	if p.leaf {
		e, err := p.Leaf(i)
		if err != nil {
			return 0, 0, err
		}
		length += len(e.Value)
	}
	at := HeaderSize + i*LeafElementSize
	from = at + int(order.Uint32(p.buf[at+p.keyField():]))
	return from, from + length, nil
}

// UsedBytes is the number of bytes of the run that header, elements, keys and
// values take. It reads the elements' headers only.
func (p Page) UsedBytes() (int, error) {
	end := HeaderSize + p.count*LeafElementSize
	heads := p.buf[HeaderSize:end]
	used, length := uint64(end), uint64(len(p.buf))
	if !p.leaf {
		for i := 0; i < p.count; i++ {
			h := heads[i*BranchElementSize:][:8]
			ksize := uint64(order.Uint32(h[4:]))
			if uint64(HeaderSize+i*BranchElementSize)+uint64(order.Uint32(h))+ksize > length {
				return 0, p.elementError(i)
			}
			used += ksize
		}
		return int(used), nil
	}
	for i := 0; i < p.count; i++ {
		h := heads[i*LeafElementSize:][:LeafElementSize]
		size := uint64(order.Uint32(h[8:])) + uint64(order.Uint32(h[12:]))
		if uint64(HeaderSize+i*LeafElementSize)+uint64(order.Uint32(h[4:]))+size > length {
			return 0, p.elementError(i)
		}
		used += size
	}
	return int(used), nil
}

// NextBucket is the first element of a leaf from i on whose value is a bucket, Count
// if there is none. It reads the elements' flags only. i must not be negative.
func (p Page) NextBucket(i int) int {
	heads := p.buf[HeaderSize : HeaderSize+p.count*LeafElementSize]
	for ; i < p.count; i++ {
		if order.Uint32(heads[i*LeafElementSize:][:4])&BucketFlag != 0 {
			return i
		}
	}
	return p.count
}

// Packed tells whether the page, a leaf, is as an Encoder makes one: keys and values
// one after the other, in the order of the elements, and keys ascending. end is where
// they end.
func (p Page) Packed() (end int, ok bool) {
	next := uint64(HeaderSize + p.count*LeafElementSize)
	var last []byte
	for i := range p.count {
		start, mid, stop, _, ok := LeafBounds(p.buf, HeaderSize+i*LeafElementSize)
		if !ok || start != next || i > 0 && bytes.Compare(last, p.buf[start:mid]) >= 0 {
			return 0, false
		}
		next, last = stop, p.buf[start:mid]
	}
	return int(next), true
}

// End is where the content of a leaf or branch page that is packed ends. Of a damaged
// one it may be anything.
func (p Page) End() uint64 {
	if p.count == 0 {
		return HeaderSize
	}
	_, end := p.bounds(p.count - 1)
	return end
}

// Image is a database file's bytes as one state sees them: pages below its
// high-water mark. It is immutable and may be shared between goroutines.
type Image struct {
	data      []byte
	pageSize  uint64
	highWater ID
	limit     ID // first page that is not in data, or not below highWater

	verified *Verified       // nil: seals are not verified
	bits     []atomic.Uint32 // of verified
}

// NewImage makes an image of data, of which pages below highWater belong to
// the state.
func NewImage(data []byte, pageSize int, highWater ID) Image {
	limit := min(highWater, ID(len(data)/pageSize))
	return Image{data: data, pageSize: uint64(pageSize), highWater: highWater, limit: limit}
}

// PageSize is the size of one page in bytes.
func (m *Image) PageSize() int { return int(m.pageSize) }

// HighWater is the first page number that the state does not use.
func (m *Image) HighWater() ID { return m.highWater }

// Run returns the bytes of n pages from id on, checked against the high-water
// mark and the bytes at hand.
func (m *Image) Run(id ID, n uint64) ([]byte, error) {
	if id >= m.highWater || n > uint64(m.highWater-id) {
		return nil, beyond(id, n, m.highWater)
	}
	if id >= m.limit || n > uint64(m.limit-id) {
		return nil, beyond(id, n, m.limit)
	}
	start := uint64(id) * m.pageSize
	end := start + n*m.pageSize
	return m.data[start:end:end], nil
}

// Header reads the header of page id, of whatever type it is.
func (m *Image) Header(id ID) (Header, error) {
	b, err := m.Run(id, 1)
	if err != nil {
		return Header{}, err
	}
	return DecodeHeader(b), nil
}

// Page returns the branch or leaf page id with its overflow pages, its seal
// verified, unless it is Unverified.
func (m *Image) Page(id ID) (Page, error) {
	if id < FirstDataPage || id >= m.limit || !m.isVerified(id) {
		return m.firstPage(id)
	}
	// As UnsealedPage, but without a call more, which random reads would notice.
	start := uint64(id) * m.pageSize
	end := start + m.pageSize
	if order.Uint32(m.data[start+12:]) != 0 {
		return m.UnsealedPage(id)
	}
	return parse(m.data[start:end:end], id)
}

// UnsealedPage is Page without a look at the seal.
func (m *Image) UnsealedPage(id ID) (Page, error) {
	if id < FirstDataPage || id >= m.limit {
		return Page{}, NoPage(id, m.limit)
	}
	start := uint64(id) * m.pageSize
	end := start + m.pageSize
	if over := order.Uint32(m.data[start+12:]); over != 0 {
		run, err := m.Run(id, uint64(over)+1)
		if err != nil {
			return Page{}, err
		}
		p, err := parse(run, id)
		p.overflow = over
		return p, err
	}
	return parse(m.data[start:end:end], id)
}
