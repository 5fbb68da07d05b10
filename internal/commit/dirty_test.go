package commit

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// run is a page run that is written.
type run struct {
	id    page.ID
	bytes []byte
}

// writeAll writes runs, in file order; false if one does not fit.
func writeAll(d *Dirty, runs []run, h *extension.Hasher, limit int, remember bool) bool {
	for _, r := range runs {
		if !d.Write(r.id, r.bytes, len(r.bytes), h, limit, remember) {
			return false
		}
	}
	return true
}

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
		d := Dirty{PageSize: pageSize}
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
				r := run{id: id, bytes: b}
				runs = append(runs, r)
				written[id] = r
				for i := range n {
					used[int(id)+i] = true
				}
				id += page.ID(n - 1)
			}
			d.Free(freed)
			if !writeAll(&d, runs, h, pages, true) {
				t.Fatalf("seed %d: no room", seed)
			}
			if err := sameAsAnew(&d, written, h, pageSize); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if rng.IntN(10) == 0 {
				d.Clear()
				clear(written)
				clear(used)
			}
		}
	}
}

func sameAsAnew(d *Dirty, written map[page.ID]run, h *extension.Hasher, pageSize int) error {
	var all []run
	for _, r := range written {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b run) int { return cmp.Compare(a.id, b.id) })
	anew := Dirty{PageSize: pageSize}
	if !writeAll(&anew, all, h, 1<<20, false) {
		return fmt.Errorf("no room")
	}
	if !slices.Equal(d.Extents, anew.Extents) || d.Size != anew.Size || d.Hash != anew.Hash {
		return fmt.Errorf("got %v, %d bytes, %x\nwant %v, %d bytes, %x", d.Extents, d.Size, d.Hash, anew.Extents, anew.Size, anew.Hash)
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
		runs = append(runs, run{id: page.ID(2 * i), bytes: make([]byte, pageSize)})
	}
	d := Dirty{PageSize: pageSize}
	if writeAll(&d, runs, h, 9, true) {
		t.Error("ten extents where nine are allowed")
	}
	d.Clear()
	if !writeAll(&d, runs, h, 10, true) || len(d.Extents) != 10 || d.Size != 10*pageSize {
		t.Errorf("ten extents: %v", d.Extents)
	}
	long := []run{{id: 100, bytes: make([]byte, MaxListed)}}
	if writeAll(&d, long, h, 100, true) {
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
			all = append(all, run{id: page.ID(2 + i), bytes: make([]byte, pageSize)})
		}
		return all
	}
	d := Dirty{PageSize: pageSize}
	writeAll(&d, runs(3000), h, 4000, true)
	d.Free([]page.Extent{{Start: 2, N: 2990}})
	if d.Clear(); d.runs != nil || d.most != 0 || len(d.Extents) > 0 || d.Size != 0 {
		t.Errorf("the memory of %d runs is kept", d.most)
	}
	writeAll(&d, runs(100), h, 4000, true)
	if d.Clear(); d.runs == nil || len(d.runs) > 0 {
		t.Error("the memory of few runs is not kept")
	}
}
