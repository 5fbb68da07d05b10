package pager

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// The dirty set, changed a little by each commit, is what one made at once of the
// same page runs would be.
func TestDirtySet(t *testing.T) {
	const pageSize, pages = 64, 200
	h, err := extension.NewHasher([16]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var d dirty
		written := map[page.ID]run{} // by first page
		used := make([]bool, pages)
		for range 30 {
			var freed []page.Extent
			for id := page.ID(0); id < pages; id++ {
				n := uint64(1)
				r, ours := written[id]
				if ours {
					n = uint64(len(r.bytes) / pageSize)
				} else if used[id] {
					continue // within a run
				}
				if rng.IntN(8) > 0 {
					continue
				}
				delete(written, id)
				for i := range n {
					used[uint64(id)+i] = false
				}
				if last := len(freed) - 1; last >= 0 && freed[last].End() == id {
					freed[last].N += n
				} else {
					freed = append(freed, page.Extent{Start: id, N: n})
				}
			}
			var runs []run
			for id := page.ID(0); id < pages; id++ {
				n := 1 + rng.IntN(3)
				if int(id)+n > pages || slices.Contains(used[id:int(id)+n], true) || rng.IntN(12) > 0 {
					continue
				}
				b := make([]byte, n*pageSize)
				b[0], b[len(b)-1] = byte(rng.Uint32()), byte(rng.Uint32())
				r := run{id: id, buffer: buffer{bytes: b}}
				runs = append(runs, r)
				written[id] = r
				for i := range n {
					used[int(id)+i] = true
				}
				id += page.ID(n - 1)
			}
			d.free(freed, pageSize)
			if !d.write(runs, h, pageSize, pages, true) {
				t.Fatalf("seed %d: no room", seed)
			}
			if err := sameAsAnew(&d, written, h, pageSize); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if rng.IntN(10) == 0 {
				d.clear()
				clear(written)
				clear(used)
			}
		}
	}
}

func sameAsAnew(d *dirty, written map[page.ID]run, h *extension.Hasher, pageSize int) error {
	var all []run
	for _, r := range written {
		all = append(all, r)
	}
	sortRuns(all)
	var anew dirty
	if !anew.write(all, h, pageSize, 1<<20, false) {
		return fmt.Errorf("no room")
	}
	if !slices.Equal(d.extents, anew.extents) || d.size != anew.size || d.hash != anew.hash {
		return fmt.Errorf("got %v, %d bytes, %x\nwant %v, %d bytes, %x", d.extents, d.size, d.hash, anew.extents, anew.size, anew.hash)
	}
	return nil
}

// A set that would be too long to list is refused.
func TestDirtySetBounds(t *testing.T) {
	const pageSize = 64
	h, err := extension.NewHasher([16]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	var runs []run
	for i := range 10 {
		runs = append(runs, run{id: page.ID(2 * i), buffer: buffer{bytes: make([]byte, pageSize)}})
	}
	var d dirty
	if d.write(runs, h, pageSize, 9, true) {
		t.Error("ten extents where nine are allowed")
	}
	d.clear()
	if !d.write(runs, h, pageSize, 10, true) || len(d.extents) != 10 || d.size != 10*pageSize {
		t.Errorf("ten extents: %v", d.extents)
	}
	long := []run{{id: 100, buffer: buffer{bytes: make([]byte, maxListed)}}}
	if d.write(long, h, pageSize, 100, true) {
		t.Error("more bytes than an opening is to read")
	}
}

// The set of dirty runs kept the memory of the most that were ever in it, which each commit
// then cleared.
func TestDirtyForgetsManyRuns(t *testing.T) {
	const pageSize = 64
	h, err := extension.NewHasher([16]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	runs := func(n int) (all []run) {
		for i := range n {
			all = append(all, run{id: page.ID(2 + i), buffer: buffer{bytes: make([]byte, pageSize)}})
		}
		return all
	}
	var d dirty
	d.write(runs(3000), h, pageSize, 4000, true)
	d.free([]page.Extent{{Start: 2, N: 2990}}, pageSize)
	if d.clear(); d.runs != nil || d.most != 0 || len(d.extents) > 0 || d.size != 0 {
		t.Errorf("the memory of %d runs is kept", d.most)
	}
	d.write(runs(100), h, pageSize, 4000, true)
	if d.clear(); d.runs == nil || len(d.runs) > 0 {
		t.Error("the memory of few runs is not kept")
	}
}
