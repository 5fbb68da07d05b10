package pager

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"holdfast/internal/page"
)

// The overlay is a map, and not a search in the runs of the prepared transactions, newest
// first, because of what this shows: one transaction on top of some that are prepared reads
// its pages, most of which are not theirs, gives them up, and is laid over and reaped.
func BenchmarkOverlay(b *testing.B) {
	for _, c := range []struct{ prepared, pages int }{{0, 5}, {8, 5}, {64, 5}, {1024, 5}, {8, 60}, {64, 60}} {
		random := rand.New(rand.NewPCG(1, 2))
		transaction := func() *Prepared {
			buf := &buffers{}
			for range c.pages {
				buf.runs = append(buf.runs, run{id: page.ID(random.Uint64N(1 << 20))})
			}
			sortRuns(buf.runs)
			return &Prepared{w: &WriteTx{buf: buf}}
		}
		var prepared []*Prepared
		for range c.prepared {
			prepared = append(prepared, transaction())
		}
		next := transaction()
		ids := make([]page.ID, c.pages)
		for i := range ids {
			ids[i] = page.ID(random.Uint64N(1 << 20))
		}
		if c.prepared > 0 { // branches are those of the transaction before
			ids[0] = prepared[c.prepared-1].w.buf.runs[0].id
		}
		var found *run
		name := fmt.Sprintf("prepared=%d/pages=%d/", c.prepared, c.pages)
		b.Run(name+"map", func(b *testing.B) {
			p := &Pager{overlay: map[page.ID]*run{}}
			for _, pr := range prepared {
				p.pipeline.Join(pr)
			}
			p.addToOverlay()
			for b.Loop() {
				for range 2 { // read, given up
					for _, id := range ids {
						found = p.overlay[id]
					}
				}
				for i := range next.w.buf.runs {
					p.overlay[next.w.buf.runs[i].id] = &next.w.buf.runs[i]
				}
				for i := range next.w.buf.runs {
					delete(p.overlay, next.w.buf.runs[i].id)
				}
			}
			for _, pr := range prepared {
				pr.inOverlay = false
			}
		})
		b.Run(name+"search", func(b *testing.B) {
			var below [][]run
			for b.Loop() {
				below = below[:0]
				for _, pr := range prepared {
					below = append(below, pr.w.buf.runs)
				}
				for range 2 {
					for _, id := range ids {
						found = searchRuns(below, id)
					}
				}
			}
		})
		_ = found
	}
}

// searchRuns is the newest run at page id in the runs of transactions; nil if there is none.
func searchRuns(transactions [][]run, id page.ID) *run {
	for i := len(transactions) - 1; i >= 0; i-- {
		runs := transactions[i]
		low, high := 0, len(runs)
		for low < high {
			if mid := int(uint(low+high) >> 1); runs[mid].id < id {
				low = mid + 1
			} else {
				high = mid
			}
		}
		if low < len(runs) && runs[low].id == id {
			return &runs[low]
		}
	}
	return nil
}
