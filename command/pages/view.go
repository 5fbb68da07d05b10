package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// Kinds of pages besides the names of types that page.TypeName has.
const (
	kindMeta     = "meta"
	kindBranch   = "branch"
	kindLeaf     = "leaf"
	kindFreelist = "freelist"
	kindRecord   = "record" // Holdfast's, of free pages
	kindFree     = "free"
	kindZeros    = "zeros" // never written, or lost
	kindUnknown  = "unknown"
)

// pageView is a page with its overflow pages, as far as it can be read.
type pageView struct {
	file   *pageFile
	id     page.ID
	header page.Header
	kind   string
	run    []byte // the first page alone if the others are not to be believed
	count  uint64 // elements, or numbers on a freelist page, as it says
	fits   uint64 // of these, those that have room in the page
	fault  error  // the first that was found
	// free is the rest of the run of free pages in which it is. What is on it is left from
	// what it was before.
	free   page.Extent
	record *recordRun
	meta   *metaPage
}

// view looks at page id. The error is that the file has no such page.
func (f *pageFile) view(id page.ID) (*pageView, error) {
	run, err := f.image.Run(id, 1)
	if err != nil {
		return nil, f.noPage(id)
	}
	v := &pageView{file: f, id: id, header: page.DecodeHeader(run), run: run, free: f.freeExtent(id)}
	if r, ok := f.record(id); ok {
		v.kind, v.record, v.free = kindRecord, r, page.Extent{}
		v.run, _ = f.image.Run(r.Start, uint64(r.Pages)) // as record has seen
		v.fault = f.recordErr(r)
		return v, nil
	}
	if v.kind = v.typeName(); v.kind == kindMeta {
		v.readMeta()
		return v, nil
	}
	v.readRun()
	v.readCount()
	v.scan()
	return v, nil
}

func (v *pageView) typeName() string {
	if v.id < page.FirstDataPage {
		return kindMeta
	}
	switch v.header.Flags {
	case page.FlagBranch, page.FlagLeaf, page.FlagMeta, page.FlagFreelist:
		return page.TypeName(v.header.Flags)
	}
	return kindUnknown
}

// fail keeps the first fault.
func (v *pageView) fail(format string, args ...any) {
	if v.fault == nil {
		v.fault = page.Corruptf(v.id, format, args...)
	}
}

// readMeta reads a meta page, or what says that it is one. A meta that is not whole is
// a fault only if the other is not whole either: writing one of them may be cut short.
func (v *pageView) readMeta() {
	if v.id < page.FirstDataPage {
		v.meta = &v.file.metas[v.id]
		if v.file.best < 0 {
			v.fail("neither meta page is whole: %s", v.meta.err)
		}
		return
	}
	m := readMeta(v.run)
	v.meta = &m
	v.fail("a meta page in the place of page %d", v.id)
}

// readRun finds out how many pages belong to the page.
func (v *pageView) readRun() {
	if v.header.ID != v.id {
		owner := ""
		if first, ok := v.overflowOf(); ok {
			owner = fmt.Sprintf("; it may be an overflow page of page %d", first)
		}
		v.fail("the page says that it is page %d%s", v.header.ID, owner)
		return
	}
	if v.kind == kindUnknown {
		v.fail("has unexpected type/flags: %x (%s)", v.header.Flags, page.TypeName(v.header.Flags))
		return
	}
	limit := v.file.highWater
	if v.id >= limit {
		limit = v.file.pages
	}
	n := uint64(v.header.Overflow) + 1
	if n > uint64(limit-v.id) {
		v.fail("it says that it has %d pages, and there are %d from it on", n, uint64(limit-v.id))
		return
	}
	if run, err := v.file.image.Run(v.id, n); err == nil {
		v.run = run
	}
}

// maxBefore is how far the page is looked for to which an overflow page belongs.
const maxBefore = 1024

// overflowOf is the page to which this may belong as an overflow page.
func (v *pageView) overflowOf() (page.ID, bool) {
	for back := page.ID(1); back <= maxBefore && back+page.FirstDataPage <= v.id; back++ {
		h, err := v.file.image.Header(v.id - back)
		if err == nil && h.ID == v.id-back && knownType(h.Flags) {
			return h.ID, uint64(h.Overflow) >= uint64(back)
		}
	}
	return 0, false
}

// readCount finds out how many elements there are.
func (v *pageView) readCount() {
	room := uint64(len(v.run)-page.HeaderSize) / page.LeafElementSize // as that of a branch
	v.count = uint64(v.header.Count)
	switch v.kind {
	case kindFreelist:
		var numbers []byte
		v.count, numbers = page.FreelistBody(v.run)
		room = uint64(len(numbers)) / freelistNumber
	case kindUnknown:
		v.count, room = 0, 0
	}
	if v.fits = min(v.count, room); v.fits < v.count {
		v.fail("%d elements do not fit into %d bytes", v.count, len(v.run))
	}
}

// scan looks at all elements, and the seal, for faults.
func (v *pageView) scan() {
	var used uint64
	for i := range v.fits {
		if v.kind == kindFreelist {
			break
		}
		e, err := v.element(i)
		if err != nil {
			v.fail("element %d of %d lies outside of its page", i, v.count)
			continue
		}
		if _, _, ok := e.bucketHeader(); e.bucket && !ok {
			v.fail("a bucket of %d bytes is shorter than its header", len(e.value))
		}
		if used += uint64(len(e.key) + len(e.value)); used > uint64(len(v.run)) {
			v.fail("its elements take more bytes than the %d that it has", len(v.run))
			v.fits = i // what comes after would be printed without end
			break
		}
	}
	if v.fault == nil && page.CheckSeal(v.run, v.id) == page.WrongSeal {
		v.fault = page.WrongSealError(v.id)
	}
}

// pages is how many pages belong together, this one the first.
func (v *pageView) pages() uint64 { return uint64(len(v.run) / v.file.pageSize) }

// damage is the fault, if it is one of a page that is in use.
func (v *pageView) damage() *page.CorruptError {
	var damage *page.CorruptError
	if v.free.N > 0 || v.id >= v.file.highWater || !errors.As(v.fault, &damage) {
		return nil
	}
	return damage
}

// What a seal is.
const (
	sealRight   = "right"
	sealMissing = "missing"
	sealWrong   = "wrong"
	sealNoRoom  = "no_room"
)

// seal is what the page's seal is; "" if pages of its kind have none.
func (v *pageView) seal() string {
	switch v.kind {
	case kindBranch, kindLeaf, kindFreelist:
	default:
		return ""
	}
	switch page.CheckSeal(v.run, v.id) {
	case page.Sealed:
		return sealRight
	case page.WrongSeal:
		return sealWrong
	}
	if v.fault == nil {
		if _, ok := page.SealOf(v.run, v.id); !ok {
			return sealNoRoom
		}
	}
	return sealMissing
}

// element is one of a leaf or a branch page. What it points to lies in the page.
type element struct {
	key, value []byte  // a branch has no values
	child      page.ID // of a branch
	bucket     bool
}

var errOutside = errors.New("lies outside of its page")

// element reads element i, which must be below fits.
func (v *pageView) element(i uint64) (element, error) {
	order := binary.NativeEndian
	at := page.HeaderSize + i*page.LeafElementSize
	b := v.run[at : at+page.LeafElementSize]
	var e element
	var start, keyLen, valueLen uint64
	if v.kind == kindBranch {
		start, keyLen = uint64(order.Uint32(b)), uint64(order.Uint32(b[4:]))
		e.child = page.ID(order.Uint64(b[8:]))
	} else {
		start, keyLen, valueLen = uint64(order.Uint32(b[4:])), uint64(order.Uint32(b[8:])), uint64(order.Uint32(b[12:]))
		e.bucket = order.Uint32(b)&page.BucketFlag != 0
	}
	start += at
	end := start + keyLen + valueLen
	if end > uint64(len(v.run)) {
		return element{}, errOutside
	}
	e.key, e.value = v.run[start:start+keyLen], v.run[start+keyLen:end]
	return e, nil
}

// bucketHeader reads the header of a bucket from its value; false if it is too short.
func (e *element) bucketHeader() (root page.ID, sequence uint64, ok bool) {
	if len(e.value) < page.BucketHeaderSize {
		return 0, 0, false
	}
	return page.ID(binary.NativeEndian.Uint64(e.value)), binary.NativeEndian.Uint64(e.value[8:]), true
}

// freelistNumber is what a number on a freelist page takes, in bytes.
const freelistNumber = 8

// number is number i of a freelist page.
func (v *pageView) number(i uint64) page.ID {
	_, numbers := page.FreelistBody(v.run)
	return page.FreelistNumber(numbers, i)
}

// recordChange is a part of a record of free pages.
type recordChange struct {
	put bool // the pages became free; else they were taken
	page.Extent
}

// changes calls fn for what a record of free pages holds, whose checksum has to be right.
// It is all that is free for a snapshot.
func (v *pageView) changes(fn func(recordChange) error) error {
	b, err := v.file.recordBytes(v.record)
	if err != nil {
		return err
	}
	const highWater = page.ID(math.MaxInt64) // the record may be of a state when the file was longer
	put := func(e page.Extent) error { return fn(recordChange{true, e}) }
	if v.record.log > 0 {
		take := func(e page.Extent) error { return fn(recordChange{false, e}) }
		return extension.Log(b, v.file.pageSize, highWater, take, put)
	}
	return extension.Snapshot(b, highWater, put, func(bits []byte) error { return extension.Bits(bits, put) })
}
