package salvage

import (
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/page"
)

// TestQueue: pages come lowest first, each once, whenever they were added.
func TestQueue(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var q queue
		pages := page.ID(1 + random.IntN(20_000))
		met, waiting := map[page.ID]bool{}, map[page.ID]bool{}
		for range 500 {
			if random.IntN(3) > 0 {
				id := page.ID(random.IntN(int(pages) + 5))
				q.add(id, pages)
				if id < pages && !met[id] {
					met[id], waiting[id] = true, true
				}
				continue
			}
			var want []page.ID
			for id := range waiting {
				want = append(want, id)
			}
			id, ok := q.next()
			if ok != (len(want) > 0) || ok && id != slices.Min(want) {
				t.Fatalf("got page %d, %v of %v", id, ok, want)
			}
			delete(waiting, id)
		}
		if q.n != len(waiting) {
			t.Fatalf("%d wait, want %d", q.n, len(waiting))
		}
	}
}
