package suite

import (
	"fmt"
	"iter"
	"os"
	"runtime"
	"slices"

	"holdfast/internal/page"
)

// freeLimit is the target, in bytes, for the memory of the free pages of a file of
// freeLimitPages pages: the set grows with the file, by about a bit and a half for a
// page, and not with the number of free pages.
const (
	freeLimit      = 200e3
	freeLimitPages = 1_200_000
)

// FreePages measures the heap that an open database needs for its free pages:
// the difference between before it is opened and after, garbage collected.
func FreePages(c Config) (Table, error) {
	engines := append(slices.Clone(Engines), holdfastNoSeals)
	t := Table{Title: "Memory of an open database that has free pages, on the heap", Columns: columns(engines)}
	n := uint64(c.FreePages)
	files := []struct {
		name          string
		pages, stride uint64
		target        bool
	}{
		{"no free pages", 0, 1, false},
		{"%d free pages in one run, file of %s", n, 1, true},
		{"%d free pages, every second one, file of %s", n / 2, 2, true},
		{"%d free pages, every second one, file of %s", n, 2, false},
	}
	for _, f := range files {
		name := f.name
		if f.pages > 0 {
			name = fmt.Sprintf(name, f.pages, FormatBytes(float64(f.pages*f.stride*pageSize)))
		}
		if err := c.freePages(&t, engines, name, f.pages, f.stride); err != nil {
			return t, err
		}
		if f.target {
			limit := freeLimit / freeLimitPages * float64(f.pages*f.stride)
			// Seals take a bit for each page that is mapped, free or not.
			m := t.Rows[len(t.Rows)-1].Cells[holdfastNoSeals.Name].Median
			t.atMost("memory of the free set, "+name, kilobytes(limit), m, limit, kilobytes(m))
		}
	}
	return t, nil
}

func kilobytes(v float64) string { return three(v/1000) + " kB" }

// freePages adds a row for files with so many free pages, each the first of
// stride pages.
func (c *Config) freePages(t *Table, engines []Engine, name string, pages, stride uint64) error {
	var runners []runner
	for _, e := range engines {
		path, err := c.path("free", e.Name)
		if err != nil {
			return err
		}
		defer remove(path)
		if err := WithFreePages(path, pages, stride); err != nil {
			return err
		}
		if e.Name == Holdfast.Name || e.Name == holdfastNoSeals.Name { // with its first commit it records free pages in its own way
			if _, err := openOnce(e, path); err != nil {
				return err
			}
		}
		runners = append(runners, runner{e.Name, func() (sample, error) {
			before := heap()
			s, err := e.Open(path, true)
			if err != nil {
				return sample{}, err
			}
			after := heap()
			// A negative difference is what something else gave back meanwhile.
			return sample{float64(max(0, after-before)), -1}, s.Close()
		}})
	}
	return t.add(c, Row{Workload: name, Unit: "B"}, runners)
}

// heap is the number of bytes in use on the heap.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers and pools held on to the first time
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// WithFreePages makes a sparse database file at path, in which a freelist page
// names so many free pages: with stride 1 one after the other, with a greater
// one each the first of stride pages, the others of which are in no tree. It
// takes eight bytes of the disk for each free page.
func WithFreePages(path string, pages, stride uint64) error {
	const firstList = page.FirstDataPage
	listPages := (page.FreelistSize(pages) + pageSize - 1) / pageSize
	root := firstList + page.ID(listPages)
	first := root + 1
	high := first + page.ID(pages*stride)

	head := make([]byte, uint64(first)*pageSize)
	at := func(id page.ID) []byte { return head[uint64(id)*pageSize:] }
	for slot := page.ID(0); slot < firstList; slot++ {
		page.EncodeMeta(at(slot)[:pageSize], slot, page.Meta{
			PageSize: pageSize, Root: root, Freelist: firstList, HighWater: high, Label: page.Label(slot),
		}, nil)
	}
	page.EncodeFreelist(at(firstList)[:listPages*pageSize], firstList, uint32(listPages-1), pages, everyStride(first, pages, stride), true)
	leaf := page.NewLeaf(at(root)[:pageSize], root, 0, 0)
	leaf.Finish(true)
	if err := os.WriteFile(path, head, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, int64(high)*pageSize)
}

func everyStride(first page.ID, pages, stride uint64) iter.Seq[page.Extent] {
	return func(yield func(page.Extent) bool) {
		for i := range pages {
			if !yield(page.Extent{Start: first + page.ID(i*stride), N: 1}) {
				return
			}
		}
	}
}
