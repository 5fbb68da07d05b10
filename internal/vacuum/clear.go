package vacuum

import (
	"context"

	"holdfast/internal/page"
)

// Long runs need holes as long as they are. Where there is none, shorter runs are moved
// out of as many pages that lie together: out of the last window
// from which all of it fits into the holes in front of the window, since each
// run goes to the first hole.

// pageSet is a bitmap of pages.
type pageSet []byte

func newPageSet(limit page.ID) pageSet { return make(pageSet, (limit+7)/8) }

func (s pageSet) has(id page.ID) bool {
	return uint64(id/8) < uint64(len(s)) && s[id/8]>>(id%8)&1 != 0
}

// add puts in n pages, as far as they are below the limit.
func (s pageSet) add(id page.ID, n uint64) {
	for end := id + page.ID(n); id < end && uint64(id/8) < uint64(len(s)); id++ {
		s[id/8] |= 1 << (id % 8)
	}
}

// overlaps tells whether one of n pages is in.
func (s pageSet) overlaps(id page.ID, n uint64) bool {
	for end := id + page.ID(n); id < end && uint64(id/8) < uint64(len(s)); id++ {
		if s.has(id) {
			return true
		}
	}
	return false
}

// makeWay decides what the next walk moves out of the way of the runs that have found no
// place, beginning with the longest ones; false: nothing can be.
func (v *vac) makeWay(ctx context.Context) (bool, error) {
	n, pages := v.longestStuck, v.stuck
	if pages == 0 { // then for what was to be joined
		n, pages = v.longestJoin, v.joins
	}
	if n < 2 {
		return false, nil
	}
	blocked, err := v.longRuns(ctx, n)
	if err != nil {
		return false, err
	}
	unused, reserved, err := v.p.UnusedBits()
	if err != nil {
		return false, err
	}
	for _, e := range reserved {
		blocked.add(e.Start, e.N)
	}
	wanted := int((pages + n - 1) / n)
	v.clear = windows(pageSet(unused), blocked, v.cut, n, wanted)
	v.shorter = n
	return v.clear != nil, nil
}

// longRuns are the pages of all runs of at least n pages.
func (v *vac) longRuns(ctx context.Context, n uint64) (pageSet, error) {
	u, err := v.p.Usage()
	if err != nil {
		return nil, err
	}
	long := newPageSet(u.HighWater)
	s := newScan(v)
	s.moves = func(id page.ID, pages uint64) bool {
		if pages >= n {
			long.add(id, pages)
		}
		return false
	}
	for !s.done() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := s.piece(); err != nil {
			return nil, err
		}
	}
	return long, nil
}

// windows chooses up to wanted windows of n pages before the cut, none of which is
// blocked, and which together have no more pages in use than are unused before the first
// of them. It returns their pages; nil if there is none.
func windows(unused, blocked pageSet, cut page.ID, n uint64, wanted int) (chosen pageSet) {
	var in, before counts // of the pages of the window [start, end), and of those before it
	for id := page.FirstDataPage; id < cut; id++ {
		before.count(id, unused, blocked, 1)
	}
	moved := 0
	for start, end := cut, cut; wanted > 0; {
		for uint64(end-start) < n { // a page more at the front
			if start == page.FirstDataPage {
				return chosen
			}
			start--
			in.count(start, unused, blocked, 1)
			before.count(start, unused, blocked, -1)
		}
		if in.blocked > 0 || moved+in.used > before.unused { // and one less after
			end--
			in.count(end, unused, blocked, -1)
			continue
		}
		if chosen == nil {
			chosen = newPageSet(cut)
		}
		chosen.add(start, n)
		moved += in.used
		in, end = counts{}, start
		wanted--
	}
	return chosen
}

// counts are numbers of pages.
type counts struct{ unused, blocked, used int }

// count adds page id, or takes it off if sign is -1.
func (c *counts) count(id page.ID, unused, blocked pageSet, sign int) {
	switch {
	case unused.has(id):
		c.unused += sign
	case blocked.has(id):
		c.blocked += sign
	default:
		c.used += sign
	}
}
