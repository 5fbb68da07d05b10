package page

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// damaged tells whether err is damage on page id whose reason contains text.
func damaged(err error, id ID, text string) bool {
	var damage *CorruptError
	return errors.As(err, &damage) && damage.Page == id && strings.Contains(damage.Reason, text)
}

// testElement is an element with flags, key and value.
type testElement struct {
	flags      uint32
	key, value string
}

func leafPage(id ID, size int, elements ...testElement) []byte {
	buf := bytes.Repeat([]byte{0xEE}, size) // what was there before must go
	e := NewLeaf(buf, id, len(elements), uint32(size/512)-1)
	for _, el := range elements {
		e.Leaf(el.flags, []byte(el.key), []byte(el.value))
	}
	e.Finish(true)
	return buf
}

func branchPage(id ID, size int, keys ...string) []byte {
	buf := bytes.Repeat([]byte{0xEE}, size)
	e := NewBranch(buf, id, len(keys), uint32(size/512)-1)
	for i, k := range keys {
		e.Branch([]byte(k), ID(100+i))
	}
	e.Finish(true)
	return buf
}

// What was encoded reads the same, and the rest of the page is zero.
func TestLeafRoundTrip(t *testing.T) {
	want := []testElement{{0, "", ""}, {0, "a", ""}, {BucketFlag, "b", "bucket"}, {0xFFFFFFFF, "c", strings.Repeat("v", 900)}}
	buf := leafPage(7, 1024, want...)
	p, err := Parse(buf, 7)
	if err != nil {
		t.Fatal(err)
	}
	if p.ID() != 7 || !p.IsLeaf() || p.Count() != 4 || p.Overflow() != 1 || p.Pages() != 2 || !p.Valid() || len(p.Bytes()) != 1024 {
		t.Errorf("header %+v", DecodeHeader(buf))
	}
	used := HeaderSize
	for i, w := range want {
		e, err := p.Leaf(i)
		if err != nil || e.Flags != w.flags || string(e.Key) != w.key || string(e.Value) != w.value {
			t.Errorf("element %d: %+v, %v", i, e, err)
		}
		if cap(e.Key) != len(e.Key) || cap(e.Value) != len(e.Value) {
			t.Errorf("element %d: appending to a slice would write on", i)
		}
		if e.IsBucket() != (w.flags&BucketFlag != 0) {
			t.Errorf("element %d: bucket %t", i, e.IsBucket())
		}
		if k, err := p.Key(i); err != nil || string(k) != w.key {
			t.Errorf("key %d: %q, %v", i, k, err)
		}
		used += LeafSize(e.Key, e.Value)
	}
	var buckets []int
	for i := p.NextBucket(0); i < p.Count(); i = p.NextBucket(i + 1) {
		buckets = append(buckets, i)
	}
	if !slices.Equal(buckets, []int{2, 3}) || p.NextBucket(p.Count()) != p.Count() {
		t.Errorf("buckets are elements %d; want 2 and 3", buckets)
	}
	if n, err := p.UsedBytes(); err != nil || n != used {
		t.Errorf("%d bytes used, %v; want %d", n, err, used)
	}
	if len(bytes.Trim(buf[used:len(buf)-SealSize], "\x00")) != 0 {
		t.Error("bytes past the content are left")
	}
	var zero Page
	if zero.Valid() {
		t.Error("the zero Page is valid")
	}
}

func TestBranchRoundTrip(t *testing.T) {
	want := []string{"", "b", strings.Repeat("k", 300)}
	buf := branchPage(9, 512, want...)
	p, err := Parse(buf, 9)
	if err != nil {
		t.Fatal(err)
	}
	used := HeaderSize
	for i, w := range want {
		k, child, err := p.Branch(i)
		if err != nil || string(k) != w || child != ID(100+i) || p.Child(i) != child || cap(k) != len(k) {
			t.Errorf("element %d: %q, %d, %v", i, k, child, err)
		}
		used += BranchSize(k)
	}
	if n, err := p.UsedBytes(); err != nil || n != used || p.IsLeaf() {
		t.Errorf("%d bytes used, %v; want %d", n, err, used)
	}
	// A copy with other children is the page with those.
	copied := bytes.Repeat([]byte{0xEE}, 512)
	enc, err := CopyBranch(copied, 11, p)
	if err != nil {
		t.Fatal(err)
	}
	enc.SetChild(1, 4711)
	enc.Finish(true)
	c, err := Parse(copied, 11)
	if err != nil || c.Child(0) != 100 || c.Child(1) != 4711 || c.Child(2) != 102 {
		t.Errorf("copy: %v, children %d %d %d", err, c.Child(0), c.Child(1), c.Child(2))
	}
	if len(bytes.Trim(copied[used:512-SealSize], "\x00")) != 0 || CheckSeal(copied, 11) != Sealed {
		t.Error("bytes past the content are left in the copy, or it is not sealed")
	}
	binary.NativeEndian.PutUint32(buf[HeaderSize+2*BranchElementSize+4:], 512)
	if _, err := CopyBranch(copied, 11, p); !damaged(err, 9, "element 2 of 3 lies outside") {
		t.Errorf("copy of a damaged branch: %v", err)
	}
}

// Parse accepts what lies just inside of each bound and refuses what lies just
// outside.
func TestParseBounds(t *testing.T) {
	header := func(h Header, size int) []byte {
		buf := make([]byte, max(size, HeaderSize))
		EncodeHeader(buf, h)
		return buf[:size]
	}
	for _, c := range []struct {
		name string
		run  []byte
		id   ID
		want string // "": accepted
	}{
		{"no bytes", nil, 3, "page of 0 bytes is shorter than its header"},
		{"one byte less than a header", make([]byte, HeaderSize-1), 3, "shorter than its header"},
		{"a header", header(Header{ID: 3, Flags: FlagLeaf}, HeaderSize), 3, ""},
		{"another number", header(Header{ID: 4, Flags: FlagLeaf}, 64), 3, "says that it is page 4"},
		{"no type", header(Header{ID: 3}, 64), 3, "unexpected type/flags: 0 (unknown<0000>)"},
		{"two types", header(Header{ID: 3, Flags: FlagLeaf | FlagBranch}, 64), 3, "unknown<0003>"},
		{"meta", header(Header{ID: 3, Flags: FlagMeta}, 64), 3, "4 (meta)"},
		{"freelist", header(Header{ID: 3, Flags: FlagFreelist}, 64), 3, "10 (freelist)"},
		{"as many as fit", header(Header{ID: 3, Flags: FlagLeaf, Count: 3}, HeaderSize+3*LeafElementSize), 3, ""},
		{"one byte short", header(Header{ID: 3, Flags: FlagLeaf, Count: 3}, HeaderSize+3*LeafElementSize-1), 3, "3 elements do not fit into 63 bytes"},
		{"branch, as many as fit", header(Header{ID: 3, Flags: FlagBranch, Count: 3}, HeaderSize+3*BranchElementSize), 3, ""},
		{"branch, one byte short", header(Header{ID: 3, Flags: FlagBranch, Count: 3}, HeaderSize+3*BranchElementSize-1), 3, "3 elements do not fit"},
		{"most", header(Header{ID: 3, Flags: FlagLeaf, Count: 0xFFFF}, HeaderSize+0xFFFF*LeafElementSize), 3, ""},
	} {
		p, err := Parse(c.run, c.id)
		if c.want == "" {
			if err != nil || !p.Valid() {
				t.Errorf("%s: %v", c.name, err)
			}
		} else if !damaged(err, c.id, c.want) || p.Valid() {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// An element that ends with its page is read; one that ends a byte further, or
// whose numbers overflow, is an error, by each way of reading it.
func TestElementBounds(t *testing.T) {
	type field struct {
		at    int // in the element
		value uint32
	}
	const posLeaf, keyLeaf, valueLeaf, posBranch, keyBranch = 4, 8, 12, 0, 4
	for _, c := range []struct {
		name   string
		branch bool
		fields []field
		bad    bool
	}{
		{"leaf: key and value up to the end", false, []field{{posLeaf, 16}, {keyLeaf, 200}, {valueLeaf, 512 - 32 - 200}}, false},
		{"leaf: value one byte too far", false, []field{{posLeaf, 16}, {keyLeaf, 200}, {valueLeaf, 512 - 32 - 199}}, true},
		{"leaf: key one byte too far", false, []field{{posLeaf, 16}, {keyLeaf, 512 - 31}, {valueLeaf, 0}}, true},
		{"leaf: empty at the end", false, []field{{posLeaf, 512 - 16}, {keyLeaf, 0}, {valueLeaf, 0}}, false},
		{"leaf: empty past the end", false, []field{{posLeaf, 512 - 15}, {keyLeaf, 0}, {valueLeaf, 0}}, true},
		{"leaf: offset largest", false, []field{{posLeaf, math.MaxUint32}}, true},
		{"leaf: key largest", false, []field{{keyLeaf, math.MaxUint32}}, true},
		{"leaf: value largest", false, []field{{valueLeaf, math.MaxUint32}}, true},
		{"leaf: sums that overflow to something small", false, []field{{posLeaf, 16}, {keyLeaf, math.MaxUint32}, {valueLeaf, 2}}, true},
		{"branch: key up to the end", true, []field{{posBranch, 16}, {keyBranch, 512 - 32}}, false},
		{"branch: key one byte too far", true, []field{{posBranch, 16}, {keyBranch, 512 - 31}}, true},
		{"branch: offset largest", true, []field{{posBranch, math.MaxUint32}}, true},
		{"branch: sum overflows", true, []field{{posBranch, math.MaxUint32}, {keyBranch, math.MaxUint32}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			buf := leafPage(5, 512, testElement{0, "k", "v"})
			if c.branch {
				buf = branchPage(5, 512, "k")
			}
			for _, f := range c.fields {
				binary.NativeEndian.PutUint32(buf[HeaderSize+f.at:], f.value)
			}
			p, err := Parse(buf, 5)
			if err != nil {
				t.Fatal(err)
			}
			var errs []error
			_, used := p.UsedBytes()
			if c.branch {
				_, _, err = p.Branch(0)
				errs = append(errs, err)
				_, err = CopyBranch(make([]byte, 512), 6, p)
				errs = append(errs, err)
			} else {
				_, err = p.Leaf(0)
				errs = append(errs, err)
			}
			_, errKey := p.Key(0)
			_, _, errSearch := p.Search([]byte("x"))
			errs = append(errs, used)
			if c.bad && len(c.fields) == 1 && c.fields[0].at == valueLeaf && !c.branch || strings.Contains(c.name, "value one byte") {
				if errKey != nil || errSearch != nil {
					t.Errorf("the key is sound, got %v and %v", errKey, errSearch)
				}
			} else {
				errs = append(errs, errKey, errSearch)
			}
			for i, err := range errs {
				if c.bad != damaged(err, 5, "element 0 of 1 lies outside its page") || !c.bad && err != nil {
					t.Errorf("way %d: %v", i, err)
				}
			}
		})
	}
}

// Search finds each key, and the place of each that is not there.
func TestSearch(t *testing.T) {
	for n := range 20 {
		var elements []testElement
		var keys []string
		for i := range n {
			k := fmt.Sprintf("%02d", 2*i+1)
			keys = append(keys, k)
			elements = append(elements, testElement{key: k})
		}
		for _, buf := range [][]byte{leafPage(3, 1024, elements...), branchPage(3, 1024, keys...)} {
			p, err := Parse(buf, 3)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2*n + 2 {
				index, exact, err := p.Search(fmt.Appendf(nil, "%02d", i))
				if err != nil || index != i/2 || exact != (i%2 == 1 && i/2 < n) {
					t.Errorf("%d keys, key %d: %d %t %v", n, i, index, exact, err)
				}
			}
		}
	}
}

// Search agrees with a search that compares whole keys, where keys are shorter than the number that it compares
// first, begin with the same one, and differ by zero bytes at their end.
func TestSearchOfHeads(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	key := func() string {
		k := make([]byte, rng.IntN(13))
		for i := range k {
			k[i] = [...]byte{0, 1, 0x7f, 0x80, 0xff}[rng.IntN(5)>>uint(rng.IntN(3))]
		}
		return string(k)
	}
	for range 2000 {
		in := map[string]bool{}
		for range rng.IntN(40) {
			in[key()] = true
		}
		keys := slices.Sorted(maps.Keys(in))
		var elements []testElement
		for _, k := range keys {
			elements = append(elements, testElement{key: k})
		}
		for _, buf := range [][]byte{leafPage(3, 2048, elements...), branchPage(3, 2048, keys...)} {
			p, err := Parse(buf, 3)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range append(keys, key(), key(), key(), key()) {
				want, found := slices.BinarySearch(keys, k)
				if index, exact, err := p.Search([]byte(k)); err != nil || index != want || exact != found {
					t.Fatalf("%x in %x: %d %t %v, and not %d %t", k, keys, index, exact, err, want, found)
				}
			}
		}
	}
}

// Pages and runs outside of the high-water mark, or of the bytes at hand, are
// not read.
func TestImageBounds(t *testing.T) {
	data := make([]byte, 8*512)
	for id := ID(2); id < 8; id++ {
		copy(data[id*512:], leafPage(id, 512))
	}
	EncodeHeader(data[5*512:], Header{ID: 5, Flags: FlagLeaf, Overflow: 1})
	m := NewImage(data, 512, 7)
	if m.PageSize() != 512 || m.HighWater() != 7 {
		t.Error("the image forgot what it was given")
	}
	for _, c := range []struct {
		id ID
		n  uint64
		ok bool
	}{
		{0, 7, true}, {0, 8, false}, {6, 1, true}, {6, 2, false}, {7, 1, false}, {7, 0, false},
		{6, math.MaxUint64, false}, {math.MaxUint64, 1, false}, {1 << 55, 1, false}, {3, 4, true}, {3, 5, false},
	} {
		run, err := m.Run(c.id, c.n)
		if (err == nil) != c.ok || c.ok && (len(run) != int(c.n)*512 || cap(run) != len(run)) {
			t.Errorf("Run(%d, %d): %d bytes, %v", c.id, c.n, len(run), err)
		}
		want := "it is not a page of this database, whose pages are 2 to 6"
		if c.id < 7 {
			want = "pages, and the last page of this database is page 6"
		}
		if !c.ok && !damaged(err, c.id, want) {
			t.Errorf("Run(%d, %d): %v", c.id, c.n, err)
		}
	}
	for id, ok := range map[ID]bool{0: false, 1: false, 2: true, 5: true, 6: true, 7: false, 1 << 55: false, 1 << 60: false, math.MaxUint64: false} {
		p, err := m.Page(id)
		if (err == nil) != ok {
			t.Errorf("Page(%d): %v", id, err)
		}
		if id == 5 && p.Pages() != 2 {
			t.Errorf("page 5 has %d pages", p.Pages())
		}
		if _, err := m.Header(id); (err == nil) != (id < 7) {
			t.Errorf("Header(%d): %v", id, err)
		}
	}
	for _, over := range []uint32{2, 3, math.MaxUint32} {
		EncodeHeader(data[5*512:], Header{ID: 5, Flags: FlagLeaf, Overflow: over})
		if _, err := m.Page(5); !damaged(err, 5, "the last page of this database is page 6") {
			t.Errorf("%d overflow pages: %v", over, err)
		}
	}
	// A high-water mark above the bytes at hand: a file that was truncated
	// after it was opened.
	m = NewImage(data, 512, 100)
	if _, err := m.Page(8); !damaged(err, 8, "not a page of this database") {
		t.Errorf("page past the bytes: %v", err)
	}
	if _, err := m.Run(7, 2); !damaged(err, 7, "it says that it has 2 pages, and the last page of this database is page 7") {
		t.Errorf("run past the bytes: %v", err)
	}
	m = NewImage(data, 512, math.MaxUint64)
	for _, id := range []ID{1 << 55, 1<<55 + 3, 1 << 60, math.MaxUint64 - 1} { // times 512 overflows
		if _, err := m.Page(id); !damaged(err, id, "") {
			t.Errorf("page %d: %v", id, err)
		}
		if _, err := m.Run(id, 1); !damaged(err, id, "") {
			t.Errorf("run %d: %v", id, err)
		}
	}
	if _, err := m.Run(1, math.MaxUint64/512+1); err == nil {
		t.Error("a run whose length overflows is read")
	}
}

func TestTypeName(t *testing.T) {
	for flags, want := range map[uint16]string{1: "branch", 2: "leaf", 4: "meta", 16: "freelist", 0: "unknown<0000>", 0xAB19: "unknown<ab19>"} {
		if got := TypeName(flags); got != want {
			t.Errorf("%#x is %s, want %s", flags, got, want)
		}
	}
	if got := Corruptf(4, "no %s", "good").Error(); got != "page 4: no good" {
		t.Error(got)
	}
	if (Extent{Start: 3, N: 4}).End() != 7 {
		t.Error("the end of an extent")
	}
}
