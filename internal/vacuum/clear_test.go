package vacuum

import (
	"math/rand/v2"
	"testing"

	"holdfast/internal/page"
)

// Windows are as long as they are to be, hold no blocked page, do not overlap, lie
// before the cut, and all that is in use in them fits into what is unused in front.
func TestWindows(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 2000 {
		cut := page.ID(10 + rnd.IntN(300))
		unused, blocked := newPageSet(cut), newPageSet(cut)
		density, runs := rnd.IntN(10), rnd.IntN(6)
		for id := page.FirstDataPage; id < cut; id++ {
			if rnd.IntN(10) < density {
				unused.add(id, 1)
			}
		}
		for range runs {
			blocked.add(page.ID(rnd.IntN(int(cut))), uint64(1+rnd.IntN(5)))
		}
		n, wanted := uint64(2+rnd.IntN(20)), 1+rnd.IntN(4)
		chosen := windows(unused, blocked, cut, n, wanted)
		if chosen == nil {
			continue
		}
		found++
		pages, used, inFront, first := 0, 0, 0, page.ID(0)
		for id := page.ID(0); id < cut; id++ {
			switch {
			case chosen.has(id):
				if first == 0 {
					first = id
				}
				if pages++; !unused.has(id) {
					if used++; blocked.has(id) {
						t.Fatalf("page %d is blocked", id)
					}
				}
			case first == 0 && id >= page.FirstDataPage && unused.has(id):
				inFront++
			}
		}
		if pages%int(n) != 0 || pages > wanted*int(n) || first < page.FirstDataPage || used > inFront {
			t.Fatalf("%d pages in windows of %d from page %d on, %d in use, %d unused in front", pages, n, first, used, inFront)
		}
	}
	if found < 200 {
		t.Errorf("%d of 2000 had a window", found)
	}
	all := newPageSet(100)
	all.add(2, 50)
	if got := windows(all, newPageSet(100), 100, 48, 1); got == nil || !got.has(52) || !got.has(99) || got.has(51) {
		t.Error("the window at the end was not chosen")
	}
	if windows(all, newPageSet(100), 100, 99, 1) != nil || windows(newPageSet(100), newPageSet(100), 100, 2, 1) != nil {
		t.Error("a window where there can be none")
	}
}
