package pager

import (
	"testing"

	"holdfast/internal/page"
)

// A writer on top of a prepared transaction must see that transaction's pages,
// which are not in the file yet, and of two the newer.
func TestWriterReadsPreparedPages(t *testing.T) {
	leaf := func(id page.ID, key string) run {
		buf := make([]byte, 512)
		e := page.NewLeaf(buf, id, 1, 0)
		e.Leaf(0, []byte(key), nil)
		e.Finish(true)
		return run{id: id, buffer: buffer{bytes: buf}}
	}
	file := make([]byte, 8*512)
	copy(file[5*512:], leaf(5, "file").bytes)
	w := &WriteTx{
		base: &State{image: page.NewImage(file, 512, 8)},
		over: overlay{{leaf(3, "old"), leaf(6, "six")}, {leaf(3, "new"), leaf(4, "four")}},
	}
	for id, want := range map[page.ID]string{3: "new", 4: "four", 5: "file", 6: "six"} {
		p, err := w.Page(id)
		if err != nil {
			t.Fatal(err)
		}
		if k, err := p.Key(0); err != nil || string(k) != want {
			t.Errorf("page %d: %q, %v; want %q", id, k, err, want)
		}
	}
	if _, err := w.Page(7); err == nil {
		t.Error("page 7, which nobody wrote, is readable")
	}
}
