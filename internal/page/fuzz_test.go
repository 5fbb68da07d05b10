package page

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"unsafe"
)

// onlyDamage ends the test unless err is nil or reports damage.
func onlyDamage(t *testing.T, err error) {
	t.Helper()
	var damage *CorruptError
	if err != nil && !errors.As(err, &damage) {
		t.Fatalf("an error that is not damage: %v", err)
	}
}

// inside ends the test unless b lies in run and cannot be made longer.
func inside(t *testing.T, run, b []byte) {
	t.Helper()
	if cap(b) != len(b) {
		t.Fatalf("%d bytes with a capacity of %d", len(b), cap(b))
	}
	if len(b) == 0 {
		return
	}
	from, at := uintptr(unsafe.Pointer(unsafe.SliceData(run))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if at < from || at+uintptr(len(b)) > from+uintptr(len(run)) {
		t.Fatalf("%d bytes at %d of a run of %d", len(b), int64(at)-int64(from), len(run))
	}
}

// frugal ends the test if fn allocates more than limit bytes. Others allocate
// meanwhile, so limits have room.
func frugal(t *testing.T, limit int, fn func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(limit)+1<<20 {
		t.Fatalf("%d bytes allocated, want %d at most", n, limit+1<<20)
	}
}

// walkPage reads everything that a parsed page has, and buckets in it, in all
// ways. All of it must lie in run.
func walkPage(t *testing.T, p Page, run []byte) {
	t.Helper()
	inside(t, run, p.Bytes())
	if HeaderSize+p.Count()*LeafElementSize > len(p.Bytes()) {
		t.Fatalf("%d elements in %d bytes", p.Count(), len(p.Bytes()))
	}
	_, err := p.UsedBytes()
	onlyDamage(t, err)
	for _, key := range []string{"", "b", "\xff"} {
		i, _, err := p.Search([]byte(key))
		if onlyDamage(t, err); i < 0 || i > p.Count() {
			t.Fatalf("element %d of %d is found", i, p.Count())
		}
	}
	for i := range p.Count() {
		k, err := p.Key(i)
		onlyDamage(t, err)
		inside(t, run, k)
		if p.IsLeaf() {
			walkElement(t, p, i, k, run)
			continue
		}
		b, child, err := p.Branch(i)
		onlyDamage(t, err)
		inside(t, run, b)
		if err == nil && (!bytes.Equal(b, k) || child != p.Child(i)) {
			t.Fatal("Branch, Key and Child differ")
		}
	}
	if key, value, _, ok := p.LeafAt(p.Count()); ok || key != nil || value != nil {
		t.Fatal("LeafAt gives an element behind the last")
	}
}

// walkElement reads element i of a leaf, whose key is k.
func walkElement(t *testing.T, p Page, i int, k, run []byte) {
	t.Helper()
	e, err := p.Leaf(i)
	onlyDamage(t, err)
	inside(t, run, e.Key)
	inside(t, run, e.Value)
	key, value, flags, ok := p.LeafAt(i)
	if ok != (err == nil) || !bytes.Equal(key, e.Key) || !bytes.Equal(value, e.Value) || flags != e.Flags {
		t.Fatal("Leaf and LeafAt differ")
	}
	if err != nil {
		return
	}
	if !bytes.Equal(e.Key, k) {
		t.Fatal("Leaf and Key differ")
	}
	if e.IsBucket() {
		if _, inline, err := DecodeBucket(e.Value); err != nil {
			onlyDamage(t, err)
		} else if inline.Valid() {
			walkPage(t, inline, e.Value)
		}
	}
}

// FuzzParse reads everything that a page of any bytes has. What is found must
// be inside of the page, and a branch is copied with all that it has.
func FuzzParse(f *testing.F) {
	f.Add(leafPage(3, 512, testElement{0, "a", "b"}, testElement{1, "c", "d"}), uint64(3))
	f.Add(branchPage(3, 512, "a", "b"), uint64(3))
	f.Add([]byte{}, uint64(0))
	inline := append(make([]byte, BucketHeaderSize), leafPage(0, 64, testElement{0, "a", "b"})...)
	tight := leafPage(4, 200, testElement{1, "in", string(inline)}, testElement{0, "k", "value"})
	f.Add(tight[:HeaderSize+2*LeafElementSize+len("ink")+len(inline)+len("value")], uint64(4)) // up to its last byte
	f.Add(tight[:HeaderSize+2*LeafElementSize], uint64(4))
	full := branchPage(5, 400, "a", "bc")
	f.Add(full[:HeaderSize+2*BranchElementSize+3], uint64(5))
	f.Add(full[:HeaderSize+2*BranchElementSize+2], uint64(5))
	f.Fuzz(func(t *testing.T, run []byte, id uint64) {
		run = run[:len(run):len(run)] // as an image gives it
		p, err := Parse(run, ID(id))
		if err != nil {
			onlyDamage(t, err)
			return
		}
		if p.ID() != ID(id) || !p.Valid() {
			t.Fatalf("page %d was asked for, this is %d", id, p.ID())
		}
		walkPage(t, p, run)
		if !p.IsLeaf() {
			again := make([]byte, len(run))
			enc, err := CopyBranch(again, 9, p)
			if err != nil {
				onlyDamage(t, err)
				return
			}
			enc.Finish(true)
			q, err := Parse(again, 9)
			if err != nil {
				t.Fatal(err)
			}
			for i := range p.Count() {
				k, child, err := p.Branch(i)
				k2, child2, err2 := q.Branch(i)
				if err != nil || err2 != nil || child != child2 || !bytes.Equal(k, k2) {
					t.Fatalf("element %d of the copy is %q %d %v, want %q %d %v", i, k2, child2, err2, k, child, err)
				}
			}
		}
	})
}

// FuzzImage takes any bytes as a file and reads all its pages: none reaches
// beyond the high-water mark or the bytes at hand.
func FuzzImage(f *testing.F) {
	file := func(pages ...[]byte) []byte {
		return append(make([]byte, 64*FirstDataPage), bytes.Join(pages, nil)...)
	}
	small := func(run []byte, overflow uint32) []byte {
		order.PutUint32(run[12:], overflow)
		return run
	}
	leaf, branch := small(leafPage(2, 64, testElement{0, "a", "b"}), 0), small(branchPage(3, 64, "a", "b"), 0)
	f.Add(file(leaf, branch), uint8(0), uint16(4))
	one := file(leaf)
	copy(one[64:], small(leafPage(1, 64, testElement{0, "a", "b"}), 0)) // in place of a meta
	f.Add(one, uint8(0), uint16(3))
	long := small(leafPage(2, 192, testElement{0, "a", string(make([]byte, 100))}), 2)
	for highWater := uint16(4); highWater < 7; highWater++ { // one page short, exact, and more than there are
		f.Add(file(long), uint8(0), highWater)
		f.Add(file(long, leaf), uint8(0), highWater)
	}
	f.Add(file(long[:190]), uint8(0), uint16(5))
	f.Fuzz(func(t *testing.T, data []byte, shift uint8, highWater uint16) {
		size := 64 << (shift % 4)
		data = data[:len(data):len(data)]
		m := NewImage(data, size, ID(highWater))
		for id := range min(ID(highWater), ID(len(data)/size)) + 2 {
			h, err := m.Header(id)
			onlyDamage(t, err)
			if err == nil && (id >= ID(highWater) || (int(id)+1)*size > len(data)) {
				t.Fatalf("the header of page %d of %d is read", id, highWater)
			}
			p, err := m.Page(id)
			if err != nil {
				onlyDamage(t, err)
				continue
			}
			if h.ID != id || id < FirstDataPage || uint64(id)+p.Pages() > uint64(highWater) || len(p.Bytes()) != int(p.Pages())*size {
				t.Fatalf("page %d of %d with %d bytes, %d pages", id, highWater, len(p.Bytes()), p.Pages())
			}
			walkPage(t, p, data[int(id)*size:][:len(p.Bytes())])
		}
		for _, id := range []ID{ID(highWater), 1 << 40, ^ID(0)} {
			if _, err := m.Page(id); err == nil {
				t.Fatalf("page %d of %d is read", id, highWater)
			}
			if _, err := m.Run(id, 1); err == nil {
				t.Fatalf("a run from page %d of %d is read", id, highWater)
			}
		}
	})
}

// fullList is a freelist page 3 of size bytes, filled to the last of them, whose
// count says that it has extra bytes more. long is the form for long lists.
func fullList(size, extra int, long bool) []byte {
	b := make([]byte, size)
	n := (size - HeaderSize) / freelistIDBytes
	h := Header{ID: 3, Flags: FlagFreelist, Count: uint16(n + extra/freelistIDBytes)}
	at := HeaderSize
	if long {
		h.Count = freelistBig
		order.PutUint64(b[at:], uint64(n-1+extra/freelistIDBytes))
		at += freelistIDBytes
	}
	EncodeHeader(b, h)
	for id := uint64(10); at < size; id, at = id+1, at+freelistIDBytes {
		order.PutUint64(b[at:], id)
	}
	return b
}

// FuzzFreelist reads a freelist page of any bytes: what it lists ascends and
// lies in the file, and is read again after it was written.
func FuzzFreelist(f *testing.F) {
	m := listImage(8, 8, 3, 0, 4, 5, 7)
	f.Add(m.data[3*512:], uint16(8))
	big := listImage(8, 8, 0xFFFF, 1, 2, 5, 6)
	f.Add(big.data[3*512:], uint16(8))
	for _, ids := range [][]uint64{{1, 4}, {4, 8}, {4, 4}, {5, 4}} { // a meta, one too high, twice, descending
		m := listImage(8, 8, 2, 0, ids...)
		f.Add(m.data[3*512:], uint16(8))
	}
	huge := fullList(512, 0, true)
	order.PutUint64(huge[HeaderSize:], 1<<40)
	f.Add(huge, uint16(200))
	for _, extra := range []int{0, 8} { // a list that ends with its page, and one number more
		for _, form := range []bool{false, true} {
			f.Add(fullList(512, extra, form), uint16(200))
		}
	}
	f.Fuzz(func(t *testing.T, run []byte, highWater uint16) {
		data := append(make([]byte, 3*512), run...)
		m := NewImage(data, 512, ID(highWater))
		var free []Extent
		var pages uint64
		var err error
		frugal(t, 16*len(run), func() { free, pages, err = m.Freelist(3) })
		if err != nil {
			onlyDamage(t, err)
			return
		}
		var n uint64
		last := FirstDataPage
		for i, e := range free {
			if e.N == 0 || e.Start < last || i > 0 && e.Start == last || e.End() > m.HighWater() {
				t.Fatalf("extents %v", free)
			}
			last = e.End()
			n += e.N
		}
		size := FreelistSize(n)
		again := make([]byte, (max(size, pages*512)+511)/512*512)
		EncodeFreelist(again, 3, uint32(len(again)/512-1), n, func(yield func(Extent) bool) {
			for _, e := range free {
				yield(e)
			}
		}, true)
		m2 := NewImage(append(make([]byte, 3*512), again...), 512, max(ID(highWater), ID(3+len(again)/512)))
		free2, _, err := m2.Freelist(3)
		if err != nil || len(free) != len(free2) {
			t.Fatalf("read again: %v, %v", free2, err)
		}
	})
}

// FuzzMeta reads a meta page of any bytes; a meta that is valid is written the
// same again.
func FuzzMeta(f *testing.F) {
	f.Add(metaPage(0, testMeta), int64(1<<20))
	f.Add(metaPage(1, Meta{}), int64(0))
	for _, size := range []uint32{0, 1, MinPageSize - 1, MaxPageSize + 1, 1 << 31} {
		f.Add(metaPage(0, Meta{PageSize: size, Root: 2, Freelist: NoFreelist, HighWater: 4}), int64(1<<40))
	}
	for _, highWater := range []ID{3, 4, 5, 1 << 55, 1<<55 + 3} { // in a file of 4 pages; the last two overflow
		f.Add(metaPage(0, Meta{PageSize: 512, Root: 2, Freelist: 3, HighWater: highWater}), int64(4*512))
		f.Add(metaPage(0, Meta{PageSize: 512, Root: highWater, Freelist: 3, HighWater: 4}), int64(4*512))
		f.Add(metaPage(0, Meta{PageSize: 512, Root: 2, Freelist: highWater, HighWater: 4}), int64(4*512))
	}
	f.Fuzz(func(t *testing.T, buf []byte, size int64) {
		m, err := DecodeMeta(buf)
		if err != nil {
			if !errors.Is(err, ErrInvalid) && err != ErrVersionMismatch && err != ErrChecksum {
				t.Fatal(err)
			}
			return
		}
		if err := m.Check(size); err != nil {
			onlyDamage(t, err)
		} else {
			ps := uint64(m.PageSize)
			pages := ID(uint64(size) / max(ps, 1))
			if size < 0 || ps < MinPageSize || ps > MaxPageSize || m.HighWater > pages || m.Label > MaxLabel ||
				m.Root < FirstDataPage || m.Root >= m.HighWater ||
				m.Freelist != NoFreelist && (m.Freelist < FirstDataPage || m.Freelist >= m.HighWater) {
				t.Fatalf("%+v is believed of a file of %d bytes", m, size)
			}
		}
		again := make([]byte, ExtensionOffset)
		EncodeMeta(again, 0, m, nil)
		if !bytes.Equal(again[HeaderSize:ExtensionOffset], buf[HeaderSize:ExtensionOffset]) {
			t.Fatal("written again it differs")
		}
		s := DecodeSlots(buf, buf)
		if best, err := s.Best(); best != 0 || err != nil {
			t.Fatalf("of two equal slots %d is the better, %v", best, err)
		}
	})
}

// FuzzBucket reads a bucket's value of any bytes, and what an inline bucket
// holds, which must lie in the value.
func FuzzBucket(f *testing.F) {
	f.Add(make([]byte, BucketHeaderSize))
	f.Add(make([]byte, BucketHeaderSize-1))
	inline := append(make([]byte, BucketHeaderSize), leafPage(0, 512, testElement{0, "k", "v"})...)
	f.Add(inline)
	f.Add(inline[:BucketHeaderSize+HeaderSize+LeafElementSize+2]) // all of it, not a byte more
	f.Add(inline[:BucketHeaderSize+HeaderSize+LeafElementSize+1])
	f.Add(inline[:BucketHeaderSize+HeaderSize+LeafElementSize-1])
	f.Add(inline[:BucketHeaderSize+HeaderSize-1])
	f.Add(append(make([]byte, BucketHeaderSize), branchPage(0, 64, "k")...))
	f.Add(append(make([]byte, BucketHeaderSize), leafPage(0, 512, testElement{1, "b", string(inline[:100])})...))
	f.Fuzz(func(t *testing.T, value []byte) {
		value = value[:len(value):len(value)]
		b, p, err := DecodeBucket(value)
		if err != nil {
			onlyDamage(t, err)
			return
		}
		if (b.Root == 0) != p.Valid() {
			t.Fatal("an inline bucket without a page, or a page without one")
		}
		if p.Valid() {
			if !p.IsLeaf() || p.ID() != 0 {
				t.Fatal("an inline bucket of another page than a leaf 0")
			}
			walkPage(t, p, value[BucketHeaderSize:])
		}
		again := bytes.Clone(value)
		EncodeBucket(again, b)
		if !bytes.Equal(again, value) {
			t.Fatal("written again it differs")
		}
	})
}
