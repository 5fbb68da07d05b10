package tree

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"holdfast/internal/page"
)

// A node that was split in two by size left a third part with the few elements
// that exceeded both halves: after random inserts pages were 48% full, where
// even splits give 69%.
func TestRandomInsertsFillPages(t *testing.T) {
	s := newStore(4096)
	edit := NewEdit(s)
	tr := OpenInline(s, edit, page.Page{})
	rng := rand.New(rand.NewPCG(1, 2))
	used := 0
	for range 40 {
		edit.Reset(s)
		for range 1000 {
			k := binary.BigEndian.AppendUint64(nil, rng.Uint64())
			v := make([]byte, 100)
			used += page.LeafSize(k, v)
			if err := tr.Put(k, v, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := tr.Merge(); err != nil {
			t.Fatal(err)
		}
		if _, err := tr.Write(DefaultFill); err != nil {
			t.Fatal(err)
		}
		s.end(t, &tr)
	}
	if fill := float64(used) / float64(len(s.runs)*4096); fill < 0.6 {
		t.Fatalf("pages are %.0f%% full", 100*fill)
	}
}
