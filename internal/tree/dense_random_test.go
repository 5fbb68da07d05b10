package tree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/page"
)

// denseHistory is a random history of a tree that is written with DenseFill: sorted keys are merged into all of it, some are replaced,
// some removed, and it is spilled in between. What nothing may refer to after a spill, pages that were given up and values that were
// put, is overwritten.
type denseHistory struct {
	t      *testing.T
	rng    *rand.Rand
	s      *store
	edit   *Edit
	tr     Tree
	m      model
	given  [][]byte // values that were put since the last spill
	spread int      // of keys
	few    bool     // there are some keys only, with long values
	joins  int      // branches whose leaves were shared out
}

// key is a key of the history; some are long.
func (h *denseHistory) key() []byte {
	n := h.rng.IntN(h.spread)
	k := fmt.Appendf(nil, "%06d", n)
	switch n % 211 {
	case 7:
		k = append(k, bytes.Repeat([]byte{'k'}, h.s.pageSize/2)...)
	case 77:
		k = append(k, bytes.Repeat([]byte{'K'}, page.MaxKeySize-len(k))...)
	}
	return k
}

// value is a new one: of some twenty a page is full, and few are longer than it.
func (h *denseHistory) value() []byte {
	n := h.rng.IntN(h.s.pageSize / 10)
	switch kind := h.rng.IntN(40); {
	case h.few:
		n = h.s.pageSize + h.rng.IntN(h.s.pageSize/2)
	case kind == 0:
		n = h.rng.IntN(4 * h.s.pageSize)
	case kind == 1:
		n = h.s.pageSize - 80 + h.rng.IntN(80)
	}
	v := bytes.Repeat([]byte{byte(h.rng.Uint32())}, n)
	h.given = append(h.given, v)
	return v
}

// change makes n changes, of which so many in ten remove.
func (h *denseHistory) change(n, removes int, sorted bool) {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = h.key()
	}
	if sorted {
		slices.SortFunc(keys, bytes.Compare)
	}
	for _, k := range keys {
		name := string(k)
		if h.rng.IntN(10) < removes {
			found, err := h.tr.Delete(k)
			if _, want := h.m[name]; err != nil || found != want {
				h.t.Fatalf("delete %.20q: %t, %v", k, found, err)
			}
			delete(h.m, name)
			continue
		}
		v := h.value()
		h.m[name] = string(v)
		if err := h.tr.Put(k, v, 0); err != nil {
			h.t.Fatal(err)
		}
		clear(k) // it was copied
	}
}

// countShared counts the branches below n whose leaves will be shared out.
func (h *denseHistory) countShared(n *node) {
	if n == nil || n.leaf {
		return
	}
	if h.tr.anyLong(n) {
		h.joins++
	}
	for i := range n.count() {
		c, _ := n.child(i)
		h.countShared(c)
	}
}

func (h *denseHistory) spill() {
	h.countShared(h.tr.node)
	if err := h.tr.Spill(h.s, DenseFill, h.s.pageSize/4); err != nil {
		h.t.Fatal(err)
	}
	var kept []*Tree
	if h.tr.Edited() {
		h.tr.Own()
		kept = append(kept, &h.tr)
	}
	h.edit.Sweep(kept)
	for _, v := range h.given {
		for i := range v {
			v[i] = 0xDD
		}
	}
	h.given = h.given[:0]
	for id := range h.s.freed {
		for i := range h.s.runs[id] {
			h.s.runs[id][i] = 0xDD
		}
	}
}

// commit ends a transaction, and begins another.
func (h *denseHistory) commit() {
	if h.tr.Edited() {
		h.countShared(h.tr.node)
		if err := h.tr.Merge(); err != nil {
			h.t.Fatal(err)
		}
		if _, err := h.tr.Write(DenseFill); err != nil {
			h.t.Fatal(err)
		}
	}
	h.edit.Reset(h.s)
	h.given = h.given[:0]
	if h.tr.Root() == 0 {
		h.tr = OpenInline(h.s, h.edit, page.Page{})
		return
	}
	h.tr = Open(h.s, h.edit, h.tr.Root())
	h.s.end(h.t, &h.tr)
	compare(h.t, &h.tr, h.m)
	err := h.tr.Walk(func(l *Level) error {
		id, pages := l.Base()
		if l.IsLeaf() && pages > 1 && l.Count() > maxGroup {
			return fmt.Errorf("leaf %d has %d pages and %d elements", id, pages, l.Count())
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// TestDenseHistories: leaves of all sizes of pages that are shared out hold what they should, in pages that are neither lost nor given up
// twice, under the right keys, whatever was put, removed and spilled before.
func TestDenseHistories(t *testing.T) {
	for _, pageSize := range []int{512, 1024, 4096, 16384, 65536} {
		t.Run(fmt.Sprint(pageSize), func(t *testing.T) {
			t.Parallel()
			joins := 0
			for seed := range uint64(max(2, min(8, 16384/pageSize))) {
				rng := rand.New(rand.NewPCG(seed, uint64(pageSize)))
				s := newStore(pageSize)
				h := &denseHistory{t: t, rng: rng, s: s, edit: NewEdit(s), m: model{}, spread: 400 << (2 * rng.IntN(3))}
				if h.few = seed%4 == 3; h.few {
					h.spread = 4
				}
				h.tr = OpenInline(s, h.edit, page.Page{})
				for range 9 {
					for range rng.IntN(4) {
						removes := []int{0, 0, 1, 5, 9}[rng.IntN(5)]
						h.change(rng.IntN(min(20+len(h.m), 600)), removes, rng.IntN(4) > 0)
						if rng.IntN(2) == 0 {
							h.spill()
							compare(t, &h.tr, h.m)
						}
					}
					h.commit()
				}
				joins += h.joins
			}
			if joins < 10 {
				t.Errorf("the leaves of %d branches were shared out", joins)
			}
			t.Logf("the leaves of %d branches were shared out", joins)
		})
	}
}
