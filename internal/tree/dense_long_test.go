package tree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/page"
)

// merged puts n random keys into tr, in their order.
func merged(t *testing.T, tr *Tree, rng *rand.Rand, n int, value []byte) {
	t.Helper()
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "%016x", rng.Uint64())
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, k := range keys {
		if err := tr.Put(k, value, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// Up to 16 leaves were joined however long they were: with values of some 100 MB their length was negative on a processor of 32 bits,
// which has an error for what is longer than it can count.
func TestDenseLeavesAreNotTooLong(t *testing.T) {
	s := newStore(4096)
	tr := OpenInline(s, NewEdit(s), page.Page{})
	merged(t, &tr, rand.New(rand.NewPCG(1, 9)), 800, make([]byte, 30))
	var keys [][]byte
	var c Cursor
	c.Init(&tr)
	for e, ok, err := c.First(); ok || err != nil; e, ok, err = c.Next() {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, bytes.Clone(e.Key))
	}
	if _, err := tr.Write(DenseFill); err != nil {
		t.Fatal(err)
	}
	huge := make([]byte, 100<<20) // of which nothing is touched
	for i := 0; i < len(keys); i += 20 {
		if err := tr.Put(keys[i], huge, 0); err != nil {
			t.Fatal(err)
		}
	}
	before := len(tr.node.items)
	if err := tr.shareOut(tr.node); err != nil {
		t.Fatal(err)
	}
	if len(tr.node.items) == before {
		t.Error("no leaves were joined")
	}
	for i := range tr.node.items {
		if n := tr.node.items[i].node; n != nil && (n.size < 0 || n.size > maxNodeBytes) {
			t.Errorf("leaf %d has %d bytes", i, n.size)
		}
	}
}

// The leaves below a branch became one, and the branch had one child: where the values of a damaged page do not follow each other it is
// not as long as the last one says.
func TestDenseLeavesWithGaps(t *testing.T) {
	s := newStore(512)
	leaf := func(id page.ID, first int) {
		buf := make([]byte, s.pageSize)
		enc := page.NewLeaf(buf, id, 5, 0)
		for i := range 5 {
			enc.Leaf(0, fmt.Appendf(nil, "%03d", first+2*i), make([]byte, []int{8, 8, 8, 250, 8}[i]))
		}
		enc.End()
		buf[page.HeaderSize+3*page.LeafElementSize+12] = 0 // the length of the long one
		s.runs[id] = buf
	}
	leaf(3, 0)
	leaf(4, 100)
	s.runs[2] = make([]byte, s.pageSize)
	enc := page.NewBranch(s.runs[2], 2, 2, 0)
	enc.Branch([]byte("000"), 3)
	enc.Branch([]byte("100"), 4)
	enc.End()
	s.next = 5
	tr := Open(s, NewEdit(s), 2)
	for key, length := range map[string]int{"001": 100, "101": 10} {
		if err := tr.Put([]byte(key), make([]byte, length), 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := tr.node.changes[0].node; !n.thin.Valid() || n.length() < 512 {
		t.Fatal("the leaf does not look long")
	}
	if err := tr.Merge(); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Write(DenseFill); err != nil {
		t.Fatal(err)
	}
	s.end(t, &tr)
}

// A leaf that was joined with others kept the memory of its elements until the tree was spilled: three times as much in all.
func TestDenseMemory(t *testing.T) {
	s := newStore(4096)
	edit := NewEdit(s)
	tr := OpenInline(s, edit, page.Page{})
	rng := rand.New(rand.NewPCG(1, 10))
	for round := range 8 {
		merged(t, &tr, rng, 6000, make([]byte, 8))
		if err := tr.Spill(s, DenseFill, 0); err != nil {
			t.Fatal(err)
		}
		items := 0
		for _, block := range edit.arena.items.list {
			items += len(block)
		}
		if items > 48<<10 {
			t.Errorf("round %d: memory for %d elements, of %d", round, items, 6000*(round+1))
		}
		edit.Sweep(nil)
	}
}
