package delta

import (
	"context"

	"holdfast/internal/page"
	"holdfast/internal/tree"
)

const (
	maxDepth   = 64      // of a tree; a deeper one is a cycle
	maxNesting = 100_000 // of buckets
	ctxEvery   = 256     // pages between two looks at the context
)

// State is one of the two states: how its pages are read, its root page, and the number of its pages. It must be held until
// the comparison has ended.
type State struct {
	Source    tree.Reader
	Root      page.ID
	HighWater page.ID
}

// Side tells the two states apart.
type Side uint8

// The state before, and the one after.
const (
	Before Side = iota
	After
)

func (s Side) bit() uint8  { return 1 << s }
func (s Side) other() Side { return 1 - s }

// budget is what all walks of a comparison have in common.
type budget struct {
	ctx    context.Context
	states [2]State
	left   [2]uint64 // pages that may still be expanded for a state
	read   uint64    // pages that were read
}

func newBudget(ctx context.Context, before, after State) *budget {
	return &budget{
		ctx: ctx, states: [2]State{before, after},
		left: [2]uint64{uint64(before.HighWater), uint64(after.HighWater)},
	}
}

// page reads a page.
func (b *budget) page(side Side, id page.ID) (page.Page, error) {
	if b.read++; b.read%ctxEvery == 0 {
		if err := b.ctx.Err(); err != nil {
			return page.Page{}, err
		}
	}
	return b.states[side].Source.Page(id)
}

// found is what is known of a page.
type found struct {
	in       uint8 // in which states it was found
	expanded uint8 // and for which it was expanded
	leaf     bool
	pages    uint32 // of its run, as its overflow may be all of 32 bits: less one
}

// item is a page that was found in a state, and is to be looked at.
type item struct {
	id   page.ID
	side Side
}

// walk finds what pages only one of two states has.
type walk struct {
	*budget
	pages  map[page.ID]found
	levels [maxDepth + 1][]item // by height above the leaves
	roots  []item               // of the buckets in the leaves that were expanded
	leaves func(Side, page.Page) error
}

func newWalk(b *budget) *walk { return &walk{budget: b, pages: make(map[page.ID]found)} }

// run compares what is below two roots; 0: there is no such tree.
func (w *walk) run(before, after page.ID) error {
	for side, root := range [2]page.ID{before, after} {
		if root == 0 {
			continue
		}
		if err := w.find(item{root, Side(side)}, &w.roots); err != nil {
			return err
		}
	}
	for depth := 0; len(w.roots) > 0; depth++ {
		if depth > maxNesting {
			return page.Corruptf(w.roots[0].id, "buckets are nested more than %d deep", maxNesting)
		}
		if err := w.trees(); err != nil {
			return err
		}
	}
	return nil
}

// trees compares the trees of w.roots, and has there the roots of the buckets in them afterwards.
func (w *walk) trees() error {
	roots := w.roots
	w.roots = nil
	for _, it := range roots {
		if w.settled(it) {
			continue
		}
		height, err := w.height(it)
		if err != nil {
			return err
		}
		w.levels[height] = append(w.levels[height], it)
	}
	for height := maxDepth; height >= 0; height-- {
		level := &w.levels[height]
		for i := 0; i < len(*level); i++ {
			if err := w.expand((*level)[i], &w.levels[max(height-1, 0)]); err != nil {
				return err
			}
		}
		*level = nil
	}
	return nil
}

// find notes that a page is in a state, and adds it to those to be looked at.
func (w *walk) find(it item, list *[]item) error {
	if limit := w.states[it.side].HighWater; it.id >= limit {
		return page.NoPage(it.id, limit)
	}
	f := w.pages[it.id]
	if f.in&it.side.bit() != 0 {
		return page.Corruptf(it.id, "it is used in more than one place")
	}
	f.in |= it.side.bit()
	w.pages[it.id] = f
	*list = append(*list, it)
	return nil
}

// settled tells whether nothing is to be learned below a page that was found: the other state has it, and it was not
// expanded there.
func (w *walk) settled(it item) bool {
	f, other := w.pages[it.id], it.side.other().bit()
	return f.in&other != 0 && f.expanded&other == 0
}

// height is the number of levels below the root of a tree.
func (w *walk) height(it item) (int, error) {
	for height, id := 0, it.id; height <= maxDepth; height++ {
		p, err := w.page(it.side, id)
		if err != nil {
			return 0, err
		}
		if p.IsLeaf() {
			return height, nil
		}
		if p.Count() == 0 {
			return 0, page.Corruptf(id, "branch without elements")
		}
		id = p.Child(0)
	}
	return 0, page.Corruptf(it.id, "the tree is deeper than any real one: pages form a cycle")
}

// expand finds what a page names, if that is to be known. Its children are added to below.
func (w *walk) expand(it item, below *[]item) error {
	if w.settled(it) {
		return nil
	}
	p, err := w.page(it.side, it.id)
	if err != nil {
		return err
	}
	if p.Pages() > w.left[it.side] {
		return page.Corruptf(it.id, "more pages are met than the database has: pages overlap")
	}
	w.left[it.side] -= p.Pages()
	f := w.pages[it.id]
	f.expanded |= it.side.bit()
	f.leaf, f.pages = p.IsLeaf(), p.Overflow()
	w.pages[it.id] = f
	if f.leaf {
		return w.leaves(it.side, p)
	}
	for i := range p.Count() {
		if err := w.find(item{p.Child(i), it.side}, below); err != nil {
			return err
		}
	}
	return nil
}

// buckets finds the buckets in a leaf.
func (w *walk) buckets(side Side, p page.Page) error {
	i := p.NextBucket(0)
	if i == p.Count() {
		return nil
	}
	p, err := w.states[side].Source.Verify(p)
	if err != nil {
		return err
	}
	for ; i < p.Count(); i = p.NextBucket(i + 1) {
		e, err := p.Leaf(i)
		if err != nil {
			return err
		}
		b, _, err := page.DecodeBucket(e.Value)
		if err != nil {
			return page.Corruptf(p.ID(), "element %d: %v", i, err)
		}
		if b.Root == 0 { // in the leaf itself
			continue
		}
		if err := w.find(item{b.Root, side}, &w.roots); err != nil {
			return err
		}
	}
	return nil
}
