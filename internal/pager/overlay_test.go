package pager

import (
	"reflect"
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/space"
)

// A writer on top of prepared transactions must see their pages, which are not in
// the file yet, and of two the newer.
func TestWriterReadsPreparedPages(t *testing.T) {
	leaf := func(id page.ID, key string) run {
		buf := make([]byte, 512)
		e := page.NewLeaf(buf, id, 1, 0)
		e.Leaf(0, []byte(key), nil)
		e.Finish(true)
		return run{id: id, buffer: buffer{bytes: buf}}
	}
	prepared := func(runs ...run) *Prepared {
		return &Prepared{w: &WriteTx{buf: &buffers{runs: runs}}}
	}
	file := make([]byte, 8*512)
	copy(file[5*512:], leaf(5, "file").bytes)
	p := &Pager{space: space.New(8)}
	old, young := prepared(leaf(3, "old"), leaf(6, "six")), prepared(leaf(3, "new"), leaf(4, "four"))
	p.pipeline.Join(old)
	p.pipeline.Join(young)
	p.addToOverlay()
	w := &WriteTx{p: p, on: young, base: &State{image: page.NewImage(file, 512, 8)}}
	for id, want := range map[page.ID]string{3: "new", 4: "four", 5: "file", 6: "six"} {
		got, err := w.Page(id)
		if err != nil {
			t.Fatal(err)
		}
		if k, err := got.Key(0); err != nil || string(k) != want {
			t.Errorf("page %d: %q, %v; want %q", id, k, err, want)
		}
	}
	if _, err := w.Page(7); err == nil {
		t.Error("page 7, which was not written, is readable")
	}

	// Taken off again, in any order, the newer page stays as long as its transaction.
	p.ended = []*Prepared{old}
	p.reap()
	if r := p.overlay[3]; r == nil || r != &young.w.buf.runs[0] || p.overlay[6] != nil {
		t.Errorf("overlay of %d runs after the older transaction went", len(p.overlay))
	}
	p.ended = []*Prepared{young}
	p.reap()
	if len(p.overlay) != 0 {
		t.Errorf("%d runs are left in the overlay", len(p.overlay))
	}
}

// The overlay stayed as large as the largest transaction that was ever in it, and each commit
// beside a waiting writer that freed more pages than it held went through all of that: 2 ms
// instead of 0.5, until the file was opened again.
func TestOverlayShrinks(t *testing.T) {
	p := &Pager{space: space.New(8)}
	prepared := func(first page.ID, n int) *Prepared {
		buf := &buffers{}
		for i := range n {
			buf.runs = append(buf.runs, run{id: first + page.ID(i)})
		}
		return &Prepared{w: &WriteTx{buf: buf}}
	}
	const many = 100_000
	large, small := prepared(10, many), prepared(5, 3)
	p.pipeline.Join(large)
	p.pipeline.Join(small)
	p.addToOverlay()
	before := reflect.ValueOf(p.overlay).Pointer()
	p.ended = []*Prepared{large}
	p.reap()
	if len(p.overlay) != 3 || p.overlayPeak > maxIdleOverlay || reflect.ValueOf(p.overlay).Pointer() == before {
		t.Errorf("%d runs are left in an overlay that has held %d", len(p.overlay), p.overlayPeak)
	}
	for i := range page.ID(3) {
		if p.overlay[5+i] != &small.w.buf.runs[i] {
			t.Errorf("page %d is not in the overlay any more", 5+i)
		}
	}
	// One of the usual size is kept.
	kept := reflect.ValueOf(p.overlay).Pointer()
	for range 100 {
		next := prepared(50, 100)
		p.pipeline.Join(next)
		p.addToOverlay()
		p.ended = []*Prepared{next}
		p.reap()
	}
	if reflect.ValueOf(p.overlay).Pointer() != kept {
		t.Error("it is made anew for small transactions")
	}
}
