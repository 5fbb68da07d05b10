package check_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/check"
	"holdfast/internal/page"
)

const pageSize = 512

// file is a database file in memory, of pages that a test lays out itself.
type file struct {
	data []byte
	in   check.Input
}

func newFile(pages int) *file {
	f := &file{data: make([]byte, pages*pageSize)}
	f.in = check.Input{Meta: page.Meta{Root: 2, HighWater: page.ID(pages)}, Accounted: true}
	return f
}

func (f *file) at(id page.ID) []byte { return f.data[id*pageSize:] }

// element is one of a leaf: a key with a value, or a bucket.
type element struct {
	key, value string
	flags      uint32
}

func kv(key string) element { return element{key: key, value: "v"} }

// nested is a bucket whose root is page root.
func nested(name string, root page.ID) element {
	v := make([]byte, page.BucketHeaderSize)
	page.EncodeBucket(v, page.Bucket{Root: root})
	return element{key: name, value: string(v), flags: page.BucketFlag}
}

// inline is a bucket whose leaf is in its value.
func inline(name string, elements ...element) element {
	v := make([]byte, page.BucketHeaderSize+size(elements))
	encodeLeaf(v[page.BucketHeaderSize:], 0, elements)
	return element{key: name, value: string(v), flags: page.BucketFlag}
}

func size(elements []element) int {
	n := page.HeaderSize
	for _, e := range elements {
		n += page.LeafElementSize + len(e.key) + len(e.value)
	}
	return n
}

func encodeLeaf(buf []byte, id page.ID, elements []element) {
	over := (len(buf) - 1) / pageSize
	enc := page.NewLeaf(buf, id, len(elements), uint32(over))
	for _, e := range elements {
		enc.Leaf(e.flags, []byte(e.key), []byte(e.value))
	}
	enc.Finish(true)
}

// leaf lays out a leaf with the overflow pages that it needs.
func (f *file) leaf(id page.ID, elements ...element) {
	pages := (size(elements) + pageSize - 1) / pageSize
	encodeLeaf(f.at(id)[:pages*pageSize], id, elements)
}

func (f *file) branch(id page.ID, children ...any) {
	enc := page.NewBranch(f.at(id)[:pageSize], id, len(children)/2, 0)
	for i := 0; i < len(children); i += 2 {
		enc.Branch([]byte(children[i].(string)), page.ID(children[i+1].(int)))
	}
	enc.Finish(true)
}

func (f *file) set16(id page.ID, off int, v uint16) {
	binary.NativeEndian.PutUint16(f.at(id)[off:], v)
}

func (f *file) set32(id page.ID, off int, v uint32) {
	binary.NativeEndian.PutUint32(f.at(id)[off:], v)
}

// run gives all faults, as text.
func (f *file) run() (faults []string) {
	m := page.NewImage(f.data, pageSize, f.in.Meta.HighWater)
	f.in.Image = &m
	check.Run(f.in, func(damage *page.CorruptError) bool {
		faults = append(faults, damage.Error())
		return true
	})
	return faults
}

// sound is a file of each shape that stock bbolt makes: a branch over leaves,
// overflow pages, nested, inline and empty buckets, a freelist page.
//
//	2 root leaf: empty, inline, tree → 3, small → 9
//	3 branch: 4, 5, 6 (with 7, 8)
//	9 leaf: deep → 10
//	10 leaf, 11 freelist page, 12 and 13 free
func sound() *file {
	f := newFile(14)
	f.leaf(2, inline("empty"), inline("inline", kv("a"), kv("b")), nested("small", 9), nested("tree", 3))
	f.branch(3, "a", 4, "m", 5, "p", 6)
	f.leaf(4, kv("a"), kv("b"))
	f.leaf(5, kv("m"), kv("n"))
	f.leaf(6, kv("p"), element{key: "q", value: strings.Repeat("x", 1200)})
	f.leaf(9, nested("deep", 10), kv("k"))
	f.leaf(10)
	f.in.Reserved = []page.Extent{{Start: 11, N: 1}}
	f.in.Free = []page.Extent{{Start: 12, N: 2}}
	return f
}

// A file without a fault has none reported.
func TestSound(t *testing.T) {
	if faults := sound().run(); len(faults) > 0 {
		t.Error(faults)
	}
	f := newFile(3) // empty database
	f.leaf(2)
	if faults := f.run(); len(faults) > 0 {
		t.Error(faults)
	}
	f = sound() // which pages are free is not known: that is not a fault
	f.in.Accounted, f.in.Free, f.in.Reserved = false, nil, nil
	if faults := f.run(); len(faults) > 0 {
		t.Error(faults)
	}
}

// The sum of the fingerprints is compared if it is known, of the file and of each page, and if nothing else is wrong,
// which would show in it too.
func TestSum(t *testing.T) {
	sum := page.Sum{Known: true}
	f := sound()
	for _, run := range [][2]page.ID{{2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 3}, {9, 1}, {10, 1}} {
		sum.Add(page.Fingerprint(f.at(run[0])[:int(run[1])*pageSize], run[0]))
	}
	if !sum.Known || sum.N == 0 {
		t.Fatalf("the pages add up to %+v", sum)
	}
	const fault = "page 2: the checksums of all pages do not add up"
	for _, c := range []struct {
		name   string
		change func(f *file)
		want   string
	}{
		{"right", func(*file) {}, ""},
		{"not known", func(f *file) { f.in.Sum = page.Sum{N: sum.N + 1} }, ""},
		{"another", func(f *file) { f.in.Sum.N++ }, fault},
		{"a page of another moment", func(f *file) { f.leaf(4, kv("a"), kv("c")) }, fault},
		{"two pages that traded places", func(f *file) {
			a, b := bytes.Clone(f.at(4)[:pageSize]), bytes.Clone(f.at(5)[:pageSize])
			copy(f.at(4), b)
			copy(f.at(5), a)
		}, "page 4: "},
		{"a place for a seal that has half of one", func(f *file) { f.at(4)[pageSize-8]++ }, fault},
		{"something else", func(f *file) { f.in.Free = f.in.Free[:0]; f.in.Sum.N++ }, "page 12: unreachable unfreed"},
	} {
		f := sound()
		f.in.Sum = sum
		c.change(f)
		faults := f.run()
		if c.want == "" && len(faults) > 0 || c.want != "" && (len(faults) == 0 || !strings.HasPrefix(faults[0], c.want)) {
			t.Errorf("%s: got %q, want %q", c.name, faults, c.want)
		}
		if c.want != fault && strings.Contains(strings.Join(faults, ""), "add up") {
			t.Errorf("%s: got %q: the sum says nothing new", c.name, faults)
		}
	}
}

// Each fault is found, with its page, and no other is made up.
func TestEachFault(t *testing.T) {
	const elem0 = page.HeaderSize
	for _, c := range []struct {
		name  string
		plant func(f *file)
		want  []string
	}{
		{"free twice", func(f *file) { f.in.Free = append(f.in.Free, page.Extent{Start: 13, N: 1}) },
			[]string{"page 13: the page is listed as free twice, or does not exist"}},
		{"free past the end", func(f *file) { f.in.Free = append(f.in.Free, page.Extent{Start: 14, N: 1}) },
			[]string{"page 14: the page is listed as free twice, or does not exist"}},
		{"list past the end", func(f *file) { f.in.Reserved[0].N = 4; f.in.Free = nil },
			[]string{"page 14: a freelist page lies outside of the file's pages"}},
		{"list is free", func(f *file) { f.in.Free = []page.Extent{{Start: 11, N: 3}} },
			[]string{"page 11: the freelist page is listed as free"}},
		{"neither used nor free", func(f *file) { f.in.Free = f.in.Free[:0] },
			[]string{"page 12: unreachable unfreed: no bucket uses the page, and it is not free",
				"page 13: unreachable unfreed: no bucket uses the page, and it is not free"}},
		{"used and free", func(f *file) { f.in.Free = []page.Extent{{Start: 5, N: 1}, {Start: 12, N: 2}} },
			[]string{`page 5: reachable freed: the page is in use and listed as free (in bucket "tree")`}},
		{"overflow page free", func(f *file) { f.in.Free = []page.Extent{{Start: 8, N: 1}, {Start: 12, N: 2}} },
			[]string{`page 8: reachable freed: the page is in use and listed as free (in bucket "tree")`}},
		{"used twice", func(f *file) {
			f.branch(3, "a", 4, "m", 4, "p", 6)
			f.in.Free[0] = page.Extent{Start: 12, N: 2}
			f.leaf(10, nested("x", 5))
		},
			[]string{`page 4: the page is used twice (in bucket "tree")`}},
		{"list in a tree", func(f *file) { f.in.Reserved[0] = page.Extent{Start: 10, N: 2} },
			[]string{`page 10: the page is used twice (in bucket "small"/"deep")`}},
		{"runs that overlap", func(f *file) { f.set32(4, 12, 1) },
			[]string{`page 5: the page is used twice (in bucket "tree")`}},
		{"wrong number", func(f *file) { f.set16(9, 0, 8) },
			[]string{`page 9: the page says that it is page 8 (in bucket "small")`, "page 10: unreachable unfreed: no bucket, as far as they could be read, uses the page"}},
		{"wrong type", func(f *file) { f.set16(10, 8, page.FlagMeta) },
			[]string{`page 10: has unexpected type/flags: 4 (meta), want branch or leaf (in bucket "small"/"deep")`}},
		{"no such page", func(f *file) { f.branch(3, "a", 4, "m", 5, "p", 14) },
			[]string{`page 14: it is not a page of this database, whose pages are 2 to 13 (`, "page 6: unreachable", "page 7: unreachable", "page 8: unreachable"}},
		{"depth of leaves", func(f *file) { f.branch(5, "m", 12); f.leaf(12, kv("m")); f.in.Free[0] = page.Extent{Start: 13, N: 1} },
			[]string{`page 12: leaf at depth 2, others are at depth 1 (in bucket "tree")`}},
		{"empty branch", func(f *file) { f.branch(10) },
			[]string{`page 10: branch without elements (in bucket "small"/"deep")`}},
		{"element outside", func(f *file) { f.set32(4, elem0+4, 600) },
			[]string{`page 4: element 0 of 2 lies outside its page (in bucket "tree")`}},
		{"value outside", func(f *file) { f.set32(4, elem0+12, 600) },
			[]string{`page 4: element 0 of 2 lies outside its page (in bucket "tree")`}},
		{"branch element outside", func(f *file) { f.set32(3, elem0+4, 600) },
			[]string{`page 3: element 0 of 3 lies outside its page (in bucket "tree")`, "page 4: unreachable"}},
		{"too many elements", func(f *file) { f.set16(4, 10, 100) },
			[]string{`page 4: 100 elements do not fit`}},
		{"keys out of order", func(f *file) { f.leaf(4, kv("b"), kv("a")) },
			[]string{`page 4: key "a" of element 1 is not above key "b" before it (in bucket "tree")`}},
		{"equal keys", func(f *file) { f.leaf(4, kv("a"), kv("a")) },
			[]string{`page 4: key "a" of element 1 is not above key "a" before it`}},
		{"branch out of order", func(f *file) { f.branch(3, "a", 4, "m", 5, "l", 6) },
			[]string{`page 3: key "l" of element 2 is not above key "m" before it`}},
		{"key below its branch", func(f *file) { f.leaf(5, kv("l"), kv("m")) },
			[]string{`page 5: key "l" of element 0 is below "m", with which the branch above names the page (in bucket "tree")`}},
		{"key above its branch", func(f *file) { f.leaf(4, kv("a"), kv("m")) },
			[]string{`page 4: key "m" of element 1 is not below "m", the first key of the next page (in bucket "tree")`}},
		{"first key above its branch", func(f *file) { f.leaf(5, kv("n")) },
			[]string{`page 5: the first key "n" is not "m", with which the branch above names the page (in bucket "tree")`}},
		{"empty leaf", func(f *file) { f.leaf(5) },
			[]string{`page 5: leaf without elements below a branch (in bucket "tree")`}},
		{"unknown flags", func(f *file) { f.leaf(10, element{key: "k", flags: 6}) },
			[]string{`page 10: element 0 has unknown flags 0x6 (in bucket "small"/"deep")`}},
		{"empty key", func(f *file) { f.leaf(10, kv("")) },
			[]string{`page 10: element 0 has an empty key (in bucket "small"/"deep")`}},
		{"short bucket", func(f *file) { f.leaf(10, element{key: "k", value: "short", flags: 1}) },
			[]string{`page 10: element 0: bucket value of 5 bytes is shorter than its header (in bucket "small"/"deep"/"k")`}},
		{"inline keys out of order", func(f *file) { f.leaf(10, inline("in", kv("b"), kv("a"))) },
			[]string{`page 10: key "a" of element 1 is not above key "b" before it (in bucket "small"/"deep"/"in")`}},
		{"bucket in an inline one", func(f *file) { f.leaf(10, inline("in", nested("x", 4))) },
			[]string{`page 4: the page is used twice (in bucket "tree")`}},
		{"bucket in itself", func(f *file) { f.leaf(10, nested("x", 9)) },
			[]string{`page 9: the page is used twice (in bucket "small"/"deep"/"x")`}},
		{"branch in itself", func(f *file) { f.branch(3, "a", 4, "m", 5, "p", 3) },
			[]string{`page 3: the page is used twice (in bucket "tree")`, "page 6: unre", "page 7: unre", "page 8: unre"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := sound()
			c.plant(f)
			expect(t, f.run(), c.want)
		})
	}
}

// expect compares faults, whose order does not matter, by their beginnings.
func expect(t *testing.T, got, want []string) {
	t.Helper()
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Fatalf("found\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
	}
}

// All that is wrong with a freelist page is found, and what is right of it
// counts.
func TestFreelistFaults(t *testing.T) {
	f := sound()
	list := f.at(11)
	ids := []page.ID{1, 13, 12, 13, 14, 5}
	page.EncodeFreelist(list, 11, 0, uint64(len(ids)), func(yield func(page.Extent) bool) {
		for _, id := range ids {
			yield(page.Extent{Start: id, N: 1})
		}
	}, true)
	f.in.Free, f.in.Reserved, f.in.Accounted, f.in.Freelist = nil, nil, false, 11
	expect(t, f.run(), []string{
		"page 11: the freelist names page 1, which is not a page of this database", "page 11: freelist is not in ascending order: 12 follows 13",
		"page 13: the page is listed as free twice", "page 11: the freelist names page 14, which is not a page of this database",
		"page 11: freelist is not in ascending order: 5 follows 13", "page 5: reachable freed",
	})
	f.set16(11, 8, page.FlagLeaf)
	expect(t, f.run(), []string{"page 11: has unexpected type/flags: 2 (leaf), want freelist"})
}

// Several faults are all found, not only the first of them; and no more than
// wanted are reported.
func TestAllFaults(t *testing.T) {
	f := sound()
	f.leaf(4, kv("b"), kv("a"), element{key: "c", flags: 8})
	f.leaf(5, kv("x"))
	f.set16(10, 8, 0)
	f.in.Free = []page.Extent{{Start: 6, N: 1}, {Start: 13, N: 1}}
	expect(t, f.run(), []string{
		"page 10: has unexpected type", "page 12: unreachable",
		`page 4: element 2 has unknown flags`, `page 4: key "a"`, `page 5: key "x" of element 0 is not below "p"`, "page 6: reachable freed",
	})
	for limit := 1; limit < 6; limit++ {
		n := 0
		check.Run(f.in, func(*page.CorruptError) bool { n++; return n < limit })
		if n != limit {
			t.Errorf("%d faults reported, want %d", n, limit)
		}
	}
}

// A part of the file can be checked by itself: what lies below a page, without
// a look at the free pages.
func TestPart(t *testing.T) {
	f := sound()
	f.leaf(4, kv("b"), kv("a"))
	f.set16(10, 8, 0)
	f.in.Free = nil
	for start, want := range map[page.ID][]string{
		2:  {`page 10: has unexpected type/flags: 0 (unknown<0000>), want branch or leaf (in bucket "small"/"deep")`, `page 4: key "a"`},
		3:  {`page 4: key "a" of element 1 is not above key "b" before it`},
		4:  {`page 4: key "a" of element 1 is not above key "b" before it`},
		5:  nil,
		9:  {`page 10: has unexpected type/flags: 0 (unknown<0000>), want branch or leaf (in bucket "deep")`},
		1:  {"page 1: it is not a page of this database"},
		14: {"page 14: it is not a page of this database, whose pages are 2 to 13"},
	} {
		f.in.Start = start
		expect(t, f.run(), want)
	}
	f = sound()
	f.branch(3, "a", 4, "m", 3)
	f.in.Start = 3
	expect(t, f.run(), []string{"page 3: the page is used twice"})
}

// A chain of branches deeper than any real tree, and buckets nested deeper than
// anybody nests them, come to an end.
func TestDepth(t *testing.T) {
	f := newFile(2 + 70)
	for id := 2; id < 71; id++ {
		f.branch(page.ID(id), "a", id+1)
	}
	f.leaf(71, kv("a"))
	faults := f.run()
	if len(faults) == 0 || faults[0] != "page 66: the tree is deeper than any real one" {
		t.Errorf("deep tree: %v", faults)
	}
	const deep = 100_010
	f = newFile(2 + deep)
	for id := page.ID(2); id < deep+1; id++ {
		f.leaf(id, nested("b", id+1))
	}
	f.leaf(deep + 1)
	f.in.Accounted = false
	faults = f.run()
	if len(faults) != 1 || !strings.Contains(faults[0], "page 100003: buckets are nested more than 100000 deep") {
		t.Errorf("deep nesting: %.200v", fmt.Sprint(faults))
	}
	in := inline("b")
	f = newFile(2 + 200)
	f.leaf(2, inline("b", inline("b", in)))
	f.in.Accounted = false
	faults = f.run()
	if len(faults) != 1 || !strings.Contains(faults[0], "page 2: an inline bucket holds a bucket") {
		t.Errorf("inline nesting: %.200v", fmt.Sprint(faults))
	}
}

// Keys in messages are written as the caller wants them.
func TestKeyText(t *testing.T) {
	f := sound()
	f.leaf(4, kv("b"), kv("a"))
	f.in.Key = func(k []byte) string { return fmt.Sprintf("<%x>", k) }
	expect(t, f.run(), []string{"page 4: key <61> of element 1 is not above key <62> before it (in bucket <74726565>)"})
}

// A branch named a page that had been overwritten. The page was reported as
// damaged, and then as one that no bucket uses, which it was not.
func TestUnreadablePageIsInUse(t *testing.T) {
	f := sound()
	clear(f.at(5)[:pageSize])
	expect(t, f.run(), []string{`page 5: `})
	f.in.Free = append(f.in.Free, page.Extent{Start: 5, N: 1}) // that it is listed as free as well is a fault of its own
	expect(t, f.run(), []string{`page 5: it is empty`, `page 5: reachable freed: the page is in use and listed as free (in bucket "tree")`})
}
