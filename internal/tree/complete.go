package tree

import (
	"slices"

	"holdfast/internal/page"
)

// Pages of what was appended, made long before the transaction commits; see append.go for the edge of the tree, at
// which it is gathered.

// completeLeaf is complete for the last leaf.
func (t *Tree) completeLeaf(all bool) error {
	if err := t.complete(len(t.edge.path), all); err != nil {
		return err
	}
	return t.completeBranches()
}

// completeBranches makes pages of what is complete in the branches at the edge that have become long. One in which a
// child is a node, as after an edit in the middle of the tree, is split in memory instead.
func (t *Tree) completeBranches() error {
	g := t.edge
	for d := len(g.path) - 1; d >= 0; d-- {
		n := g.path[d]
		if n.size < batchPages*t.edit.w.PageSize() && !n.tooLong() {
			return nil
		}
		if n.onlyPages() {
			height := len(g.path)
			t.spilled = true // a later edit of such a branch reads a page of the transaction itself
			if err := t.complete(d, false); err != nil {
				return err
			}
			d += len(g.path) - height
			continue
		}
		if len(n.items) < minSplit { // long because of its keys
			return nil
		}
		if d == 0 {
			if err := t.raise(); err != nil {
				return err
			}
			d = 1
		}
		right := t.edit.arena.newNode(false)
		n.splitOff(n.half(), right)
		parent := g.path[d-1]
		parent.insert(len(parent.items), item{key: right.items[0].key, node: right})
		g.path[d] = right
	}
	return nil
}

// minSplit is how many children a branch has that is split in memory: two for each half.
const minSplit = 4

// onlyPages tells whether no child of a branch is a node but the last.
func (n *node) onlyPages() bool {
	return !slices.ContainsFunc(n.items[:len(n.items)-1], func(it item) bool { return it.node != nil })
}

// complete makes pages of the elements of the node at a depth of the edge: of all, or of those that
// whatever comes later does not change: not the last page, and none after which there are fewer
// elements than the splitter may look at.
func (t *Tree) complete(depth int, all bool) error {
	g, e := t.edge, t.edit
	n := g.leaf
	if depth < len(g.path) {
		n = g.path[depth]
	}
	cuts := splitter{pageSize: e.w.PageSize(), fill: g.fill, append: n.appended && !n.grown}.split(n, n.basePages, e.cuts[:0])
	e.cuts = cuts
	done := len(cuts)
	if !all {
		done--
		for done > 0 && len(n.items)-cuts[done-1].end < maxGroup {
			done--
		}
	}
	if done == 0 {
		return nil
	}
	if depth == 0 {
		if err := t.raise(); err != nil {
			return err
		}
		depth = 1
	}
	if err := t.freeBase(n); err != nil {
		return err
	}
	e.Stats.Spills++
	e.Stats.Splits += int64(done - 1)
	parent := g.path[depth-1]
	from := 0
	for i, c := range cuts[:done] {
		it, err := t.completePage(n.leaf, n.items[from:c.end], c.size)
		if err != nil {
			return err
		}
		if i == 0 {
			last := &parent.items[len(parent.items)-1]
			parent.size += len(it.key) - len(last.key)
			*last = it
		} else {
			parent.insert(len(parent.items), it)
		}
		n.size -= c.size - page.HeaderSize
		from = c.end
	}
	t.keepRest(n, from)
	if len(n.items) > 0 {
		parent.insert(len(parent.items), item{key: e.branchKey(&n.items[0]), node: n})
	} else {
		g.leaf = nil
	}
	return nil
}

// keepRest leaves n, a node at the edge, the items from index from on.
func (t *Tree) keepRest(n *node, from int) {
	left := copy(n.items, n.items[from:])
	clear(n.items[left:])
	n.items = n.items[:left]
	if n.leaf {
		t.edge.keepAgain(n.items, t.edit.w.PageSize())
	}
}

// completePage makes a page run of items, and gives the element for it in the branch above.
func (t *Tree) completePage(leaf bool, items []item, size int) (item, error) {
	e := t.edit
	if err := e.verifyItems(items); err != nil {
		return item{}, err
	}
	if err := checkOrder(items); err != nil && !leaf {
		return item{}, err
	}
	pages := (size + e.w.PageSize() - 1) / e.w.PageSize()
	id, buf, err := t.edge.appender.Allocate(uint64(pages), !leaf)
	if err != nil {
		return item{}, err
	}
	e.Stats.PagesFilled += int64(pages)
	if end := encode(buf, id, uint32(pages-1), leaf, items); !e.Unsealed {
		t.edge.appender.Seal(end)
	}
	return item{key: e.branchKey(&items[0]), child: id}, nil
}

// keep copies b into the edge's memory.
func (g *edge) keep(b []byte, pageSize int) []byte {
	if len(b) > cap(g.memory)-len(g.memory) {
		// What is there stays with the elements that lie in it.
		size := min(max(2*cap(g.memory), minMemory), 2*g.gathers()*pageSize+gatherValues*len(b))
		g.memory = make([]byte, 0, max(size, len(b)))
		g.lent = false
	}
	at := len(g.memory)
	g.memory = append(g.memory, b...)
	return g.memory[at:len(g.memory):len(g.memory)]
}

// keepAgain moves what was gathered of items, which are all that is left, so that the
// memory of the others can be used again.
func (g *edge) keepAgain(items []item, pageSize int) {
	old, lent := g.memory, g.lent
	g.memory, g.spare, g.lent = g.spare[:0], nil, false
	for i := range items {
		if it := &items[i]; it.gathered {
			it.key, it.value = g.keep(it.key, pageSize), g.keep(it.value, pageSize)
		}
	}
	if !lent {
		g.spare = old[:0]
	}
}
