package delta

import (
	"context"

	"holdfast/internal/page"
)

// Pages are numbers of pages.
type Pages struct {
	Branch, Leaf uint64
	Overflow     uint64 // pages after the first of a branch or leaf
}

// Total is the number of all.
func (p Pages) Total() uint64 { return p.Branch + p.Leaf + p.Overflow }

// Comparison is what two states differ in.
type Comparison struct {
	New  Pages  // that only the state after has
	Gone Pages  // that only the state before has
	Read uint64 // how many branch and leaf pages the comparison has read

	pages map[page.ID]found
}

// Compare compares the pages of two states. Those of the freelist and the meta pages do not count. Errors are damage, a
// *page.CorruptError, those of the states' Sources, or that of ctx. The caller has to be ready for faults of the mappings.
func Compare(ctx context.Context, before, after State) (*Comparison, error) {
	w := newWalk(newBudget(ctx, before, after))
	w.leaves = w.buckets
	if err := w.run(before.Root, after.Root); err != nil {
		return nil, err
	}
	c := &Comparison{Read: w.read, pages: w.pages}
	for side, sum := range [2]*Pages{&c.Gone, &c.New} {
		c.EachRun(Side(side), func(e page.Extent, leaf bool) {
			sum.Overflow += e.N - 1
			if leaf {
				sum.Leaf++
			} else {
				sum.Branch++
			}
		})
	}
	return c, nil
}

// EachRun calls fn with each branch and leaf page, with its overflow, that only one side has, in no order.
func (c *Comparison) EachRun(side Side, fn func(e page.Extent, leaf bool)) {
	for id, f := range c.pages {
		if f.in == side.bit() {
			fn(page.Extent{Start: id, N: uint64(f.pages) + 1}, f.leaf)
		}
	}
}
