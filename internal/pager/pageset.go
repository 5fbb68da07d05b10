package pager

import (
	"iter"

	"holdfast/internal/page"
)

// pageSet is a bitmap of the pages below a high-water mark.
type pageSet struct {
	bits  []uint64
	limit page.ID
}

func newPageSet(limit page.ID) *pageSet {
	return &pageSet{bits: make([]uint64, (limit+63)/64), limit: limit}
}

// add puts e in. If one of its pages is in already, or not below the limit, it
// returns that page and false.
func (s *pageSet) add(e page.Extent) (page.ID, bool) {
	for id := e.Start; id < e.End(); id++ {
		if id >= s.limit {
			return id, false
		}
		w, bit := &s.bits[id/64], uint64(1)<<(id%64)
		if *w&bit != 0 {
			return id, false
		}
		*w |= bit
	}
	return 0, true
}

// missing gives the pages below the limit that are not in, as maximal runs.
func (s *pageSet) missing() iter.Seq[page.Extent] {
	return func(yield func(page.Extent) bool) {
		var run page.Extent
		for id := page.ID(0); id < s.limit; id++ {
			if s.bits[id/64]&(1<<(id%64)) == 0 {
				if run.N == 0 {
					run.Start = id
				}
				run.N++
				continue
			}
			if run.N > 0 && !yield(run) {
				return
			}
			run.N = 0
		}
		if run.N > 0 {
			yield(run)
		}
	}
}
