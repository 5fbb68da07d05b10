package tree

import "holdfast/internal/page"

// Edit is what all trees of one writing transaction share.
type Edit struct {
	Stats Counters
	// Unsealed leaves out the seals of pages.
	Unsealed bool

	w      Writer
	lazy   []page.Page // of which nodes were made while they were unverified
	arena  arena
	spare  arena   // empty but during Sweep
	parts  []item  // scratch of Write: a stack
	cuts   []cut   // scratch of Write
	moved  int     // items that removals have moved, for tests
	works  []*work // of trees: those of this transaction, then those of earlier ones
	opened int     // trees of this transaction
}

// work is what a tree that can be edited has besides: trees that are only read, of which there are many more, are smaller
// without.
type work struct {
	finger  finger
	removed removal // the last
}

// keptWorks is how many are kept from one transaction to the next.
const keptWorks = 32

// newWork is for a tree that is opened.
func (e *Edit) newWork() *work {
	if e == nil {
		return nil
	}
	if e.opened == len(e.works) {
		e.works = append(e.works, &work{})
	}
	w := e.works[e.opened]
	e.opened++
	return w
}

// clear makes w new, keeping its memory.
func (w *work) clear() { *w = work{removed: removal{key: w.removed.key[:0]}} }

// Counters count what a transaction did to its trees.
type Counters struct {
	Nodes       int64 // pages turned into nodes
	Rebalances  int64 // nodes looked at because they shrank
	Splits      int64 // additional pages that nodes were split into
	Spills      int64 // nodes written
	PagesFilled int64 // pages allocated
}

// Add adds those of another edit.
func (c *Counters) Add(o Counters) {
	c.Nodes += o.Nodes
	c.Rebalances += o.Rebalances
	c.Splits += o.Splits
	c.Spills += o.Spills
	c.PagesFilled += o.PagesFilled
}

// NewEdit begins the edits of one transaction.
func NewEdit(w Writer) *Edit { return &Edit{w: w} }

// Reset makes e ready for the next transaction, keeping its memory. Nothing
// may use the trees of the previous one any more.
func (e *Edit) Reset(w Writer) {
	e.w = w
	e.Stats = Counters{}
	clear(e.lazy)
	e.lazy = e.lazy[:0]
	e.arena.reset()
	e.spare.reset()
	e.arena.swept, e.spare.swept = false, false
	if cap(e.parts) > maxNodeItems {
		e.parts = nil
	}
	clear(e.parts[:cap(e.parts)])
	e.parts = e.parts[:0]
	kept := min(len(e.works), keptWorks)
	clear(e.works[kept:])
	e.works, e.opened = e.works[:kept], 0
	for _, w := range e.works {
		w.clear()
	}
}
