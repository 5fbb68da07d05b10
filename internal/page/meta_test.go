package page

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
)

var testMeta = Meta{
	PageSize: 4096, Flags: 0x11223344, Root: 3, Sequence: 0x5566778899AABBCC,
	Freelist: 2, HighWater: 4, Label: 0x0102030405060708,
}

func metaPage(slot ID, m Meta, ext ...byte) []byte {
	buf := bytes.Repeat([]byte{0xEE}, 512)
	EncodeMeta(buf, slot, m, ext)
	return buf
}

// A meta reads as it was written, and stands where bbolt looks for it.
func TestMetaRoundTrip(t *testing.T) {
	buf := metaPage(1, testMeta, 1, 2, 3)
	m, err := DecodeMeta(buf)
	if err != nil || m != testMeta {
		t.Errorf("read %+v, %v", m, err)
	}
	if h := DecodeHeader(buf); h != (Header{ID: 1, Flags: FlagMeta}) {
		t.Errorf("header %+v", h)
	}
	ext := Extension(buf)
	if !bytes.Equal(ext[:4], []byte{1, 2, 3, 0}) || len(ext) != 512-80 {
		t.Errorf("extension %v...", ext[:4])
	}
	if Extension(buf[:80]) != nil || Extension(nil) != nil || len(Extension(buf[:81])) != 1 {
		t.Error("the extension of a page without room for one")
	}
	at := func(off int) uint64 { return binary.NativeEndian.Uint64(buf[16+off:]) }
	for off, want := range map[int]uint64{16: 3, 24: testMeta.Sequence, 32: 2, 40: 4, 48: uint64(testMeta.Label)} {
		if at(off) != want {
			t.Errorf("offset %d holds %#x, want %#x", off, at(off), want)
		}
	}
}

// Each bit of a meta is covered by its checksum, or makes it no meta at all.
func TestMetaEveryBit(t *testing.T) {
	for bit := range 64 * 8 {
		buf := metaPage(0, testMeta)
		buf[16+bit/8] ^= 1 << (bit % 8)
		_, err := DecodeMeta(buf)
		want := ErrChecksum
		switch {
		case bit < 32:
			want = ErrInvalid
		case bit < 64:
			want = ErrVersionMismatch
		}
		if err != want {
			t.Errorf("bit %d: %v, want %v", bit, err, want)
		}
	}
	for n := range ExtensionOffset {
		if _, err := DecodeMeta(metaPage(0, testMeta)[:n]); err != ErrInvalid {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, err := DecodeMeta(metaPage(0, testMeta)[:ExtensionOffset]); err != nil {
		t.Errorf("just long enough: %v", err)
	}
	buf := metaPage(0, testMeta)
	for i := range 2 {
		buf[16+i], buf[19-i] = buf[19-i], buf[16+i]
	}
	if _, err := DecodeMeta(buf); !errors.Is(err, ErrInvalid) || err == ErrInvalid {
		t.Errorf("other byte order: %v", err)
	}
}

// Check draws the line at each number where it belongs.
func TestMetaCheck(t *testing.T) {
	const size = 4 * 4096
	for _, c := range []struct {
		name   string
		change func(m *Meta)
		size   int64
		ok     bool
	}{
		{"as it is", func(m *Meta) {}, size, true},
		{"a longer file", func(m *Meta) {}, 100 * size, true},
		{"one byte short", func(m *Meta) {}, size - 1, false},
		{"no file", func(m *Meta) {}, 0, false},
		{"negative size", func(m *Meta) {}, -1, false},
		{"smallest page", func(m *Meta) { m.PageSize = MinPageSize }, size, true},
		{"page too small", func(m *Meta) { m.PageSize = MinPageSize - 1 }, size, false},
		{"largest page", func(m *Meta) { m.PageSize = MaxPageSize }, 4 * MaxPageSize, true},
		{"page too large", func(m *Meta) { m.PageSize = MaxPageSize + 1 }, math.MaxInt64, false},
		{"fewest pages", func(m *Meta) { m.HighWater = 3; m.Root = 2 }, size, true},
		{"too few pages", func(m *Meta) { m.HighWater = 2; m.Root = 2 }, size, false},
		{"no pages", func(m *Meta) { m.HighWater = 0 }, size, false},
		{"product overflows", func(m *Meta) { m.HighWater = math.MaxUint64 / 4096 * 2 }, math.MaxInt64, false},
		{"product overflows to little", func(m *Meta) { m.HighWater = 1<<52 + 4 }, size, false},
		{"root is a meta", func(m *Meta) { m.Root = 1 }, size, false},
		{"root is the first data page", func(m *Meta) { m.Root = 2 }, size, true},
		{"root past the end", func(m *Meta) { m.Root = 4 }, size, false},
		{"freelist is a meta", func(m *Meta) { m.Freelist = 1 }, size, false},
		{"freelist is the last page", func(m *Meta) { m.Freelist = 3 }, size, true},
		{"freelist past the end", func(m *Meta) { m.Freelist = 4 }, size, false},
		{"no freelist", func(m *Meta) { m.Freelist = NoFreelist }, size, true},
		{"almost no freelist", func(m *Meta) { m.Freelist = NoFreelist - 1 }, size, false},
	} {
		m := testMeta
		c.change(&m)
		err := m.Check(c.size)
		if (err == nil) != c.ok || !c.ok && !damaged(err, 0, "the meta page ") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The better slot, and the slot and label of the next commit: labels have their
// slot's parity and go up, also after both slots were made equal.
func TestSlots(t *testing.T) {
	slot := func(label Label) []byte { m := testMeta; m.Label = label; return metaPage(0, m) }
	torn := make([]byte, 512)
	for _, c := range []struct {
		slots     [2][]byte
		best      int
		next      int
		nextLabel Label
	}{
		{[2][]byte{slot(0), slot(1)}, 1, 0, 2},
		{[2][]byte{slot(2), slot(1)}, 0, 1, 3},
		// Equal slots: the one whose label has its parity is written over.
		{[2][]byte{slot(5), slot(5)}, 0, 1, 7},
		{[2][]byte{slot(4), slot(4)}, 0, 0, 6},
		{[2][]byte{slot(3), slot(7)}, 1, 0, 8},
		{[2][]byte{slot(3), slot(8)}, 1, 0, 10}, // a label without its slot's parity
		{[2][]byte{torn, slot(9)}, 1, 0, 10},
		{[2][]byte{slot(9), torn}, 0, 1, 11},
		{[2][]byte{slot(8), torn}, 0, 1, 9},
	} {
		s := DecodeSlots(c.slots[0], c.slots[1])
		best, err := s.Best()
		next, label := s.Next()
		if err != nil || best != c.best || next != c.next || label != c.nextLabel {
			t.Errorf("labels %d and %d: best %d, next %d with %d, %v; want %d, %d with %d",
				s.Meta[0].Label, s.Meta[1].Label, best, next, label, err, c.best, c.next, c.nextLabel)
		}
		if label <= s.Meta[best].Label || uint64(label)%2 != uint64(next) {
			t.Errorf("label %d in slot %d above %d", label, next, s.Meta[best].Label)
		}
	}
	s := DecodeSlots(torn, slot(1)[:70])
	if _, err := s.Best(); err != ErrInvalid {
		t.Errorf("no slot: %v", err)
	}
	s.Next() // says nothing, but must not fail
}

// The header of a bucket, with and without an inline page after it.
func TestBucketHeader(t *testing.T) {
	value := make([]byte, BucketHeaderSize)
	EncodeBucket(value, Bucket{Root: 0x1122334455667788, Sequence: 9})
	b, p, err := DecodeBucket(value)
	if err != nil || b != (Bucket{Root: 0x1122334455667788, Sequence: 9}) || p.Valid() {
		t.Errorf("read %+v, %v", b, err)
	}
	if _, _, err := DecodeBucket(value[:BucketHeaderSize-1]); !damaged(err, 0, "bucket value of 15 bytes is shorter") {
		t.Errorf("one byte short: %v", err)
	}
	inline := append(make([]byte, BucketHeaderSize), leafPage(0, 512, testElement{0, "k", "v"})[:40]...)
	EncodeBucket(inline, Bucket{Sequence: 3})
	b, p, err = DecodeBucket(inline)
	if err != nil || b.Sequence != 3 || p.Count() != 1 {
		t.Fatalf("inline: %+v, %v", b, err)
	}
	if e, err := p.Leaf(0); err != nil || string(e.Key) != "k" {
		t.Errorf("inline element: %+v, %v", e, err)
	}
	for name, c := range map[string]struct {
		h    Header
		n    int
		want string
	}{
		"no page":          {Header{Flags: FlagLeaf}, BucketHeaderSize, "page of 0 bytes"},
		"half a header":    {Header{Flags: FlagLeaf}, BucketHeaderSize + HeaderSize - 1, "page of 15 bytes"},
		"empty leaf":       {Header{Flags: FlagLeaf}, BucketHeaderSize + HeaderSize, ""},
		"branch":           {Header{Flags: FlagBranch}, BucketHeaderSize + HeaderSize, "inline bucket holds a branch"},
		"one too many":     {Header{Flags: FlagLeaf, Count: 1}, BucketHeaderSize + HeaderSize + 15, "1 elements do not fit"},
		"a page number":    {Header{ID: 1, Flags: FlagLeaf}, BucketHeaderSize + HeaderSize, "says that it is page 1"},
		"another type":     {Header{Flags: FlagMeta}, BucketHeaderSize + HeaderSize, "unexpected type"},
		"just long enough": {Header{Flags: FlagLeaf, Count: 1}, BucketHeaderSize + HeaderSize + 16, ""},
	} {
		value := make([]byte, 64)
		EncodeHeader(value[BucketHeaderSize:], c.h)
		_, _, err := DecodeBucket(value[:c.n])
		if c.want == "" && err != nil || c.want != "" && !damaged(err, 0, c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// listPage is a freelist page in an image of pages pages of 512 bytes, with the
// numbers given.
func listImage(pages int, highWater ID, count uint16, overflow uint32, numbers ...uint64) Image {
	data := make([]byte, pages*512)
	EncodeHeader(data[3*512:], Header{ID: 3, Flags: FlagFreelist, Count: count, Overflow: overflow})
	for i, n := range numbers {
		binary.NativeEndian.PutUint64(data[3*512+HeaderSize+8*i:], n)
	}
	return NewImage(data, 512, highWater)
}

// A freelist reads as extents; each bound has an error on its other side.
func TestFreelist(t *testing.T) {
	const room = (512 - HeaderSize) / 8
	many := make([]uint64, 0, 2*room)
	for i := range uint64(2 * room) {
		many = append(many, 10+2*i)
	}
	big := append([]uint64{3}, 5, 6, 7)
	for _, c := range []struct {
		name  string
		image Image
		want  string // extents, or a piece of the error after a !
	}{
		{"empty", listImage(8, 8, 0, 0), "[] 1"},
		{"one", listImage(8, 8, 1, 0, 5), "[{5 1}] 1"},
		{"joined", listImage(20, 20, 5, 0, 2, 4, 5, 6, 19), "[{2 1} {4 3} {19 1}] 1"},
		{"twice", listImage(8, 8, 2, 0, 5, 5), "!not in ascending order: 5 follows 5"},
		{"down", listImage(8, 8, 2, 0, 6, 5), "!not in ascending order: 5 follows 6"},
		{"a meta", listImage(8, 8, 1, 0, 1), "!names page 1, which is not a page of this database"},
		{"past the end", listImage(8, 8, 1, 0, 8), "!names page 8, which is not a page of this database: they are 2 to 7"},
		{"largest number", listImage(8, 8, 1, 0, math.MaxUint64), "!names page 18446744073709551615"},
		{"full page", listImage(300, 300, room, 0, many[:room]...), fmt.Sprint(strided(room), " 1")},
		{"one more than fits", listImage(300, 300, room+1, 0, many[:room+1]...), "!does not fit into its 1 page(s)"},
		{"true count", listImage(8, 8, 0xFFFF, 0, big...), "[{5 3}] 1"},
		{"true count of none", listImage(8, 8, 0xFFFF, 0, 0), "[] 1"},
		{"true count too large", listImage(8, 8, 0xFFFF, 0, room), "!does not fit"},
		{"true count absurd", listImage(8, 8, 0xFFFF, 0, math.MaxUint64), "!does not fit"},
		{"overflow", listImage(300, 300, room+1, 1, many[:room+1]...), fmt.Sprint(strided(room+1), " 2")},
		{"overflow up to the end", listImage(8, 8, 0, 4), "[] 5"},
		{"overflow too large", listImage(8, 8, 0, 5), "!pages, and the last page of this database is page 7"},
		{"overflow absurd", listImage(8, 8, 0, math.MaxUint32), "!pages, and the last page of this database is page 7"},
	} {
		free, pages, err := c.image.Freelist(3)
		if c.want[0] == '!' {
			if !damaged(err, 3, c.want[1:]) {
				t.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
		} else if got := fmt.Sprint(free, " ", pages); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.want)
		}
	}
	m := listImage(8, 8, 0, 0)
	for id, want := range map[ID]string{2: "it is empty", 8: "not a page of this database, whose pages are 2 to 7"} {
		if _, _, err := m.Freelist(id); !damaged(err, id, want) {
			t.Errorf("page %d: %v", id, err)
		}
	}
	EncodeHeader(m.data[4*512:], Header{ID: 4, Flags: FlagLeaf})
	if _, _, err := m.Freelist(4); !damaged(err, 4, "want freelist") {
		t.Errorf("a leaf: %v", err)
	}
}

// strided is every second page from 10 on.
func strided(n int) (all []Extent) {
	for i := range n {
		all = append(all, Extent{Start: ID(10 + 2*i), N: 1})
	}
	return all
}

// A list reads as it was written, around the length from which on the count
// stands in the first number; its size is what it takes.
func TestFreelistRoundTrip(t *testing.T) {
	for _, n := range []uint64{0, 1, 61, 62, 63, 0xFFFE, 0xFFFF, 0x10000, 100_000} {
		size := FreelistSize(n)
		want := 16 + 8*n
		if n >= 0xFFFF {
			want += 8
		}
		if size != want {
			t.Errorf("%d numbers take %d bytes, want %d", n, size, want)
		}
		pages := (size + 511) / 512
		high := ID(3 + pages + 2*n + 2)
		data := bytes.Repeat([]byte{0xEE}, int(high)*512)
		var list []Extent
		for i, left := ID(3+pages), n; left > 0; i += 5 { // runs of three with holes of two
			e := Extent{Start: i, N: min(3, left)}
			list = append(list, e)
			left -= e.N
		}
		run := data[3*512 : (3+pages)*512]
		EncodeFreelist(run, 3, uint32(pages-1), n, func(yield func(Extent) bool) {
			for _, e := range list {
				yield(e)
			}
		}, true)
		m := NewImage(data, 512, high)
		free, k, err := m.Freelist(3)
		if err != nil || k != pages || fmt.Sprint(free) != fmt.Sprint(list) {
			t.Errorf("%d numbers: %d pages, %v", n, k, err)
		}
		if len(bytes.Trim(run[size:max(size, uint64(len(run)-SealSize))], "\x00")) != 0 {
			t.Errorf("%d numbers: bytes past the content are left", n)
		}
	}
}
