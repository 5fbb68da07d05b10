package tree

import (
	"bytes"
	"math"

	"holdfast/internal/page"
	"holdfast/internal/plant"
)

// Appender takes the pages that appending completes. What it returns pages for may be in
// the file long before the transaction commits.
type Appender interface {
	// Allocate and Seal are as those of Writer. Pages that are complete may be written
	// during the next call.
	Allocate(n uint64, hot bool) (page.ID, []byte, error)
	Seal(end int)
	// WriteLeaf makes a leaf of one element, of which it keeps nothing. See page.LoneLeaf.
	WriteLeaf(key, value []byte, sealed bool) (id page.ID, pages uint64, err error)
	// Owns tells whether page id came from here.
	Owns(id page.ID) bool
	// Quietly calls read, which keeps nothing of the pages that it reads.
	Quietly(read func() error) error
}

// edge is the right edge of a tree to which keys are appended. Small elements are
// gathered in its last leaf, a node, of which pages are made as soon as nothing that comes
// later can change them. Elements as long as a page become a leaf of their own at once. In the
// branches, which are nodes, stays a page number for each.
//
// What it knows of the tree is right if edits is that of the tree.
type edge struct {
	edits uint64
	path  []*node   // branches, from the root on
	leaf  *node     // the last leaf, if it is a node
	page  page.Page // or else if it is a page that may have room for more
	some  bool      // the tree has elements
	key   []byte    // the last

	before []byte // the last before the first Append, for cursors

	// Keys and values of the elements that were gathered lie in memory, and what lay in
	// spare is in pages. lent: somebody may still look at memory, so that it cannot become spare.
	memory, spare []byte
	lent          bool

	appender Appender
	fill     float64
}

// gatherPages is how many pages of elements are gathered before complete ones are sought.
const gatherPages = 2

// gatherValues is for how many values of a page or more there is to be room: twice as many as
// the splitter looks at, and some.
const gatherValues = 2*maxGroup + 2

// minMemory is the first piece of an edge's memory, in bytes.
const minMemory = 512

// lend says that somebody may look at elements for as long as the transaction lasts.
func (t *Tree) lend() {
	if t.edge != nil {
		t.edge.lent = true
	}
}

// Append adds an element without flags after all others. It copies what it needs of key
// and value. Pages that are complete come from a and go to it; fill is as for Write. The
// error is ErrUnordered if key is not after the last one; after an error of a, the tree
// is of no use.
func (t *Tree) Append(a Appender, fill float64, key, value []byte) error {
	if t.edit == nil {
		return errReadOnly
	}
	made := t.edge == nil
	if made {
		t.edge = new(edge)
	}
	g := t.edge
	g.appender, g.fill = a, fill
	known := g.edits == t.edits && t.edits > 0
	if !known {
		if err := a.Quietly(t.findLast); err != nil {
			return err
		}
	}
	if made {
		g.before = bytes.Clone(g.key)
	}
	if g.some && bytes.Compare(g.key, key) >= 0 {
		return ErrUnordered
	}
	if !known {
		find := func() error { return a.Quietly(t.findEdge) }
		if t.spilled && !plant.On(plant.SpillTakesBranch) { // branches of pages that may be given up become nodes
			find = t.findEdge
		}
		if err := find(); err != nil {
			return err
		}
	}
	t.edits++
	var err error
	if t.alone(key, value) {
		err = t.appendLarge(key, value)
	} else {
		err = t.appendSmall(key, value)
	}
	if err != nil {
		return err
	}
	t.edits++
	g.edits = t.edits
	g.key, g.some = append(g.key[:0], key...), true
	return nil
}

// maxLoneWaste is the share, one in so many, of its pages that an element may leave empty
// and still have them for itself. Sharing them with others costs two copies.
const maxLoneWaste = 8

// alone tells whether an element gets pages of its own.
func (t *Tree) alone(key, value []byte) bool {
	ps := int64(t.edit.w.PageSize())
	if int64(len(value)) < ps {
		return false
	}
	used := int64(page.HeaderSize+page.LeafElementSize+len(key)) + int64(len(value))
	taken := (used + ps - 1) / ps * ps
	return (taken-used)*maxLoneWaste <= taken
}

// findLast finds the last key.
func (t *Tree) findLast() error {
	key, ok, err := t.lastKey()
	if err != nil {
		return err
	}
	t.edge.key, t.edge.some = append(t.edge.key[:0], key...), ok
	return nil
}

// findEdge turns the branches at the right edge into nodes.
func (t *Tree) findEdge() error {
	g := t.edge
	g.lent = true // an edit may have moved elements to other nodes
	for {
		empty, err := t.descendEdge()
		if err != nil {
			return err
		}
		if !empty || plant.On(plant.EdgeNotPruned) {
			return nil
		}
		if err := t.prune(); err != nil {
			return err
		}
	}
}

// descendEdge is findEdge but for the empty leaf, not the root, at which it may end.
func (t *Tree) descendEdge() (empty bool, err error) {
	g := t.edge
	g.path, g.leaf, g.page = g.path[:0], nil, page.Page{}
	pl, err := t.rootPlace()
	if err != nil {
		return false, err
	}
	if pl.p.Valid() && pl.leaf() && pl.p.ID() != 0 {
		g.page = pl.p
		return false, nil
	}
	n, err := t.editRoot()
	if err != nil {
		return false, err
	}
	for !n.leaf {
		switch {
		case len(g.path) == maxDepth:
			return false, page.Corruptf(n.base, tooDeep)
		case n.count() == 0:
			return false, page.Corruptf(n.base, emptyBranch)
		}
		if err := n.thicken(); err != nil {
			return false, err
		}
		g.path = append(g.path, n)
		last := &n.items[len(n.items)-1]
		c := last.node
		if c == nil {
			p, err := t.src.Page(last.child)
			if err != nil {
				return false, err
			}
			if p.IsLeaf() {
				if !g.appender.Owns(last.child) {
					g.page = p
				}
				return p.Count() == 0, nil
			}
			if c, err = t.editChild(n, len(n.items)-1); err != nil {
				return false, err
			}
		}
		n = c
	}
	g.leaf = n
	return n.count() == 0 && len(g.path) > 0, n.thicken()
}

// prune takes the leaf at the edge, which is empty, off the tree, and branches that are
// empty then: the keys under which they stand may be after what comes next.
func (t *Tree) prune() error {
	g := t.edge
	if g.leaf != nil {
		if err := t.freeBase(g.leaf); err != nil {
			return err
		}
	} else if err := t.edit.w.Free(g.page.ID(), g.page.Pages()); err != nil {
		return err
	}
	for d := len(g.path) - 1; d >= 0; d-- {
		n := g.path[d]
		n.remove(len(n.items) - 1)
		if n.shrunk = true; len(n.items) > 0 {
			return nil
		}
		if err := t.freeBase(n); err != nil {
			return err
		}
	}
	t.node = t.edit.arena().newNode(true)
	return nil
}

// appendSmall gathers an element in the last leaf.
func (t *Tree) appendSmall(key, value []byte) error {
	g := t.edge
	ps := t.edit.w.PageSize()
	if g.leaf == nil && g.page.Valid() {
		if err := t.reopen(page.LeafElementSize + len(key) + len(value)); err != nil {
			return err
		}
	}
	n := g.leaf
	if n == nil {
		n = t.edit.arena().newNode(true)
	}
	if int64(n.size)+int64(len(key)+page.LeafElementSize)+int64(len(value)) > math.MaxInt {
		return ErrTooLarge
	}
	n.insert(len(n.items), item{key: g.keep(key, ps), value: g.keep(value, ps), child: page.ID(t.edits), gathered: true})
	if g.leaf == nil {
		if err := t.appendChild(item{key: t.edit.arena().copyKey(key), node: n}); err != nil {
			return err
		}
		g.leaf = n
	}
	if n.size < gatherPages*ps {
		return nil
	}
	return t.complete(false)
}

// reopen makes the last leaf, a page, a node if it has room for an element of size bytes.
func (t *Tree) reopen(size int) error {
	g := t.edge
	p := g.page
	g.page = page.Page{}
	if p.Overflow() > 0 || p.End()+uint64(size) > uint64(fullPage(t.edit.w.PageSize())) {
		if len(g.path) == 0 {
			g.page = p // appendChild needs its first key
		}
		return nil
	}
	var n *node
	var err error
	if len(g.path) == 0 {
		n, err = t.editRoot()
	} else {
		parent := g.path[len(g.path)-1]
		n, err = t.editChild(parent, len(parent.items)-1)
	}
	if err != nil {
		return err
	}
	g.leaf = n
	return n.thicken()
}

// appendLarge writes an element as a leaf of its own.
func (t *Tree) appendLarge(key, value []byte) error {
	g := t.edge
	e := t.edit
	if n := g.leaf; n != nil && len(n.items) > 0 && n.items[len(n.items)-1].gathered {
		if err := t.complete(true); err != nil {
			return err
		}
	}
	id, pages, err := g.appender.WriteLeaf(key, value, !e.Unsealed)
	if err != nil {
		return err
	}
	e.Stats.Spills++
	e.Stats.PagesFilled += int64(pages)
	if err := t.appendChild(item{key: e.arena().copyKey(key), child: id}); err != nil {
		return err
	}
	g.leaf = nil
	return nil
}

// appendChild puts a leaf after all others.
func (t *Tree) appendChild(it item) error {
	g := t.edge
	if len(g.path) == 0 {
		if err := t.raise(); err != nil {
			return err
		}
	}
	parent := g.path[len(g.path)-1]
	parent.insert(len(parent.items), it)
	g.page = page.Page{}
	t.splitEdge()
	return nil
}

// raise puts a branch above a root that is a leaf.
func (t *Tree) raise() error {
	g := t.edge
	root := t.edit.arena().newNode(false)
	switch n := t.node; {
	case n != nil && len(n.items) > 0:
		root.insert(0, item{key: t.edit.branchKey(&n.items[0]), node: n})
	case n != nil:
		if err := t.freeBase(n); err != nil {
			return err
		}
	case g.page.Valid() && g.page.Count() > 0:
		key, err := g.page.Key(0)
		if err != nil {
			return err
		}
		root.insert(0, item{key: key, child: g.page.ID()})
	case g.page.Valid():
		if err := t.edit.w.Free(g.page.ID(), g.page.Pages()); err != nil {
			return err
		}
	}
	t.node = root
	g.path = append(g.path, root)
	return nil
}

// branchKey is the key of a leaf's first element for the branch above.
func (e *Edit) branchKey(first *item) []byte {
	if first.gathered {
		return e.arena().copyKey(first.key)
	}
	return first.key
}

// splitEdge splits the branches at the edge that have become too long.
func (t *Tree) splitEdge() {
	g := t.edge
	for d := len(g.path) - 1; d >= 0; d-- {
		n := g.path[d]
		if !n.tooLong() {
			return
		}
		right := t.edit.arena().newNode(false)
		n.splitOff(n.half(), right)
		g.path[d] = right
		it := item{key: right.items[0].key, node: right}
		if d > 0 {
			g.path[d-1].insert(len(g.path[d-1].items), it)
			continue
		}
		root := t.edit.arena().newNode(false)
		root.insert(0, item{key: n.items[0].key, node: n})
		root.insert(1, it)
		t.node = root
		g.path = append(g.path, nil)
		copy(g.path[1:], g.path)
		g.path[0] = root
	}
}

// complete makes pages of the elements in the last leaf, a node: of all, or of those that
// whatever comes later does not change: not the last page, and none after which there are fewer
// elements than the splitter may look at.
func (t *Tree) complete(all bool) error {
	g, e := t.edge, t.edit
	n := g.leaf
	ps := e.w.PageSize()
	cuts := splitter{pageSize: ps, fill: g.fill, append: n.appended && !n.grown}.split(n, n.basePages, e.cuts[:0])
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
	if len(g.path) == 0 {
		if err := t.raise(); err != nil {
			return err
		}
	}
	if err := t.freeBase(n); err != nil {
		return err
	}
	e.Stats.Spills++
	e.Stats.Splits += int64(done - 1)
	parent := g.path[len(g.path)-1]
	from := 0
	for i, c := range cuts[:done] {
		it, err := t.completePage(n.items[from:c.end], c.size)
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
	left := copy(n.items, n.items[from:])
	clear(n.items[left:])
	n.items = n.items[:left]
	g.keepAgain(n.items, ps)
	if g.leaf = nil; left > 0 {
		g.leaf = n
		parent.insert(len(parent.items), item{key: e.branchKey(&n.items[0]), node: n})
	}
	t.splitEdge()
	return nil
}

// completePage makes a page run of items of the last leaf, and gives the element for it in
// the branch above.
func (t *Tree) completePage(items []item, size int) (item, error) {
	e := t.edit
	if err := e.verifyItems(items); err != nil {
		return item{}, err
	}
	pages := (size + e.w.PageSize() - 1) / e.w.PageSize()
	id, buf, err := t.edge.appender.Allocate(uint64(pages), false)
	if err != nil {
		return item{}, err
	}
	e.Stats.PagesFilled += int64(pages)
	if end := encode(buf, id, uint32(pages-1), true, items); !e.Unsealed {
		t.edge.appender.Seal(end)
	}
	return item{key: e.branchKey(&items[0]), child: id}, nil
}

// keep copies b into the edge's memory.
func (g *edge) keep(b []byte, pageSize int) []byte {
	if len(b) > cap(g.memory)-len(g.memory) {
		// What is there stays with the elements that lie in it.
		size := min(max(2*cap(g.memory), minMemory), 2*gatherPages*pageSize+gatherValues*len(b))
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
	if !lent || plant.On(plant.EdgeReused) {
		g.spare = old[:0]
	}
}
