package check_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"holdfast/internal/check"
	"holdfast/internal/page"
)

// layout gives all runs, as text: the pages, the kind, and the elements.
func (f *file) layout(t *testing.T, damage *page.CorruptError) string {
	t.Helper()
	m := page.NewImage(f.data, pageSize, f.in.Meta.HighWater)
	f.in.Image = &m
	var runs []string
	next := page.ID(0)
	for r := range check.Layout(f.in, damage) {
		if r.ID != next || r.Pages == 0 || r.End() > f.in.Meta.HighWater {
			t.Fatalf("after page %d: %+v", next, r)
		}
		if (r.Kind == check.KindDamaged) != (r.Err != nil) {
			t.Errorf("%+v", r)
		}
		next = r.End()
		text := fmt.Sprintf("%d", r.ID)
		if r.Pages > 1 {
			text += fmt.Sprintf("-%d", r.End()-1)
		}
		text += " " + string(r.Kind)
		if r.Elements > 0 {
			text += fmt.Sprintf(" %d", r.Elements)
		}
		runs = append(runs, text)
	}
	if next != f.in.Meta.HighWater {
		t.Errorf("pages up to %d of %d", next, f.in.Meta.HighWater)
	}
	return strings.Join(runs, ", ")
}

func TestLayout(t *testing.T) {
	const all = "0 meta, 1 meta, 2 leaf 4, 3 branch 3, 4 leaf 2, 5 leaf 2, 6-8 leaf 2, 9 leaf 2, 10 leaf, 11 freelist, 12-13 free"
	for _, c := range []struct {
		name   string
		change func(f *file) *page.CorruptError
		want   string
	}{
		{"sound", func(*file) *page.CorruptError { return nil }, all},
		{"a record of free pages", func(f *file) *page.CorruptError {
			f.in.Reserved = []page.Extent{{Start: 12, N: 2}, {Start: 11, N: 1}} // in any order
			f.in.Records, f.in.Free = f.in.Reserved[:1], nil
			return nil
		}, strings.Replace(all, "12-13 free", "12-13 record", 1)},
		{"a freelist page that nobody needs", func(f *file) *page.CorruptError {
			f.set16(11, 8, page.FlagLeaf)
			return nil
		}, all},
		{"a page that says it is another", func(f *file) *page.CorruptError {
			f.at(5)[0]++
			return nil
		}, strings.Replace(all, "5 leaf 2", "5 damaged", 1)},
		{"elements without room", func(f *file) *page.CorruptError {
			f.set16(6, 10, 500)
			return nil
		}, strings.Replace(all, "6-8 leaf 2", "6-8 damaged", 1)},
		{"a value that ends outside", func(f *file) *page.CorruptError {
			f.set32(4, page.HeaderSize+12, 1<<31)
			return nil
		}, strings.Replace(all, "4 leaf 2", "4 damaged", 1)},
		{"elements that share their bytes", func(f *file) *page.CorruptError {
			for i := range 2 {
				at := page.HeaderSize + i*page.LeafElementSize
				f.set32(9, at+4, 100)
				f.set32(9, at+12, 300)
			}
			return nil
		}, strings.Replace(all, "9 leaf 2", "9 damaged", 1)},
		{"overflow into the freelist page", func(f *file) *page.CorruptError {
			f.set32(9, 12, 2)
			return nil
		}, strings.Replace(all, "9 leaf 2", "9 damaged", 1)},
		{"overflow beyond everything", func(f *file) *page.CorruptError {
			f.set32(10, 12, 1<<32-1)
			return nil
		}, strings.Replace(all, "10 leaf", "10 damaged", 1)},
		{"a wrong meta in a free page", func(f *file) *page.CorruptError {
			f.set16(12, 8, page.FlagLeaf)
			return nil
		}, all},
		{"free pages found twice", func(f *file) *page.CorruptError {
			f.in.Free = []page.Extent{{Start: 10, N: 4}, {Start: 13, N: 9}}
			return nil
		}, strings.Replace(all, "10 leaf, ", "10 free, ", 1)},
		// The free pages are not known.
		{"a damaged freelist page", func(f *file) *page.CorruptError {
			f.in.Accounted, f.in.Reserved, f.in.Free, f.in.Freelist = false, nil, nil, 11
			return page.Corruptf(11, "is no good")
		}, strings.Replace(all, "11 freelist", "11 damaged", 1)},
		{"a scan that found damage", func(f *file) *page.CorruptError {
			f.in.Accounted, f.in.Reserved, f.in.Free = false, nil, nil
			f.at(3)[0]++
			return page.Corruptf(3, "is no good")
		}, "0 meta, 1 meta, 2 leaf 4, 3 damaged, 4-8 unknown, 9 leaf 2, 10 leaf, 11-13 unknown"},
		{"a scan that found damage of no page", func(f *file) *page.CorruptError {
			f.in.Accounted, f.in.Reserved, f.in.Free = false, nil, nil
			f.branch(3, "a", 4, "m", 5, "p", 99)
			return page.Corruptf(99, "no such page")
		}, "0 meta, 1 meta, 2 leaf 4, 3 branch 3, 4 leaf 2, 5 leaf 2, 6-8 unknown, 9 leaf 2, 10 leaf, 11-13 unknown"},
	} {
		f := sound()
		page.EncodeFreelist(f.at(11)[:pageSize], 11, 0, 0, func(func(page.Extent) bool) {}, false)
		damage := c.change(f)
		if got := f.layout(t, damage); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// A wrong seal is damage where seals are verified, and nowhere else.
func TestLayoutSeals(t *testing.T) {
	f := sound()
	f.at(4)[page.HeaderSize+2*page.LeafElementSize]++ // a key
	if got := f.layout(t, nil); strings.Contains(got, "damaged") {
		t.Error(got)
	}
	m := page.NewImage(f.data, pageSize, f.in.Meta.HighWater)
	m = m.Verifying(page.NewVerified(int(m.HighWater()), nil, new(atomic.Int64)))
	f.in.Image = &m
	damaged := 0
	for r := range check.Layout(f.in, nil) {
		if r.Kind == check.KindDamaged {
			if damaged++; r.ID != 4 || !strings.Contains(r.Err.Reason, "seal") {
				t.Errorf("%+v", r)
			}
		}
	}
	if damaged != 1 {
		t.Errorf("%d damaged pages", damaged)
	}
}

// A file that is one large hole, with a meta that claims all of it, is not read to its end.
func TestLayoutOfHole(t *testing.T) {
	const pages = 1<<20 + 5000
	m := page.NewImage(make([]byte, pages*pageSize), pageSize, pages)
	in := check.Input{Image: &m, Meta: page.Meta{Root: 2, HighWater: pages}, Accounted: true, Free: []page.Extent{{Start: pages - 100, N: 50}}}
	var damaged, unknown, free uint64
	for r := range check.Layout(in, nil) {
		switch r.Kind {
		case check.KindDamaged:
			damaged += r.Pages
		case check.KindUnknown:
			unknown += r.Pages
		case check.KindFree:
			free += r.Pages
		}
	}
	if damaged != 1<<20 || free != 50 || damaged+unknown+free != pages-2 {
		t.Errorf("%d pages are damaged, %d unknown, %d free", damaged, unknown, free)
	}
}

// What trees do not use is found whatever the number of pages.
func TestLayoutMissing(t *testing.T) {
	for _, pages := range []int{14, 63, 64, 65, 127, 128, 129, 200, 640} {
		f := newFile(pages)
		last := page.ID(pages - 1)
		f.leaf(2, nested("bucket", last))
		f.leaf(last, kv("k"))
		f.in.Accounted = false
		want := fmt.Sprintf("0 meta, 1 meta, 2 leaf 1, 3-%d free, %d leaf 1", last-1, last)
		if got := f.layout(t, nil); got != want {
			t.Errorf("%d pages: %s", pages, got)
		}
	}
}
