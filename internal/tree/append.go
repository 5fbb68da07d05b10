package tree

import (
	"bytes"
	"errors"
	"math"
	"slices"

	"holdfast/internal/page"
)

// ErrUnordered is returned by Append for a key that is not after all others.
var ErrUnordered = errors.New("keys are not in ascending order")

// Appender takes the pages that appending completes. What it returns pages for may be in
// the file long before the transaction commits: pages that are complete may be written
// during the next call of Allocate.
type Appender interface {
	Writer
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
// branches, which are nodes too, stays a page number for each; of long branches pages are made in
// the same way. So of each level a few pages are in memory, however large the tree becomes.
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
	// spare is in pages. lent: the caller may still look at memory, so that it cannot become spare.
	memory, spare []byte
	lent          bool

	appender Appender
	fill     float64
}

// How many pages of elements are gathered before complete ones are sought: few of elements that
// are copied, so that these are in a processor's cache still.
const (
	gatherPages = 2
	batchPages  = 16
)

// gathers is that for elements that are copied.
func (g *edge) gathers() int {
	if g.fill >= WideFill {
		return gatherPages + WideFill
	}
	return gatherPages
}

// gatherValues is for how many values of a page or more there is to be room: twice as many as
// the splitter looks at, and some.
const gatherValues = 2*maxGroup + 2

// minMemory is the first piece of an edge's memory, in bytes.
const minMemory = 512

// lend says that the caller may look at elements for as long as the transaction lasts.
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
	if err := t.toEdge(a, fill, key); err != nil {
		return err
	}
	var err error
	if t.alone(key, value) {
		err = t.appendLarge(key, value)
	} else {
		err = t.appendSmall(&item{key: key, value: value, gathered: true})
	}
	return t.appended(key, err)
}

// AppendStable is Append of an element whose key and value stay as they are until the transaction
// ends. They are not copied. Pages are divided as Write divides a node to which all was appended, but with WideFill.
func (t *Tree) AppendStable(a Appender, fill float64, key, value []byte, flags uint32) error {
	if err := t.toEdge(a, fill, key); err != nil {
		return err
	}
	return t.appended(key, t.appendSmall(&item{key: key, value: value, flags: flags}))
}

// Begin makes t a new, empty tree, with the memory that it has. edit is not nil, and the same in each call.
func (t *Tree) Begin(src Reader, edit *Edit) {
	g, w := t.edge, t.work
	if w == nil {
		w = edit.newWork()
	} else {
		w.clear()
	}
	*t = Tree{src: src, edit: edit, edge: g, work: w}
	if g != nil {
		clear(g.path)
		*g = edge{path: g.path[:0], key: g.key[:0]}
	}
}

// toEdge finds the right edge of the tree, to which key is appended.
func (t *Tree) toEdge(a Appender, fill float64, key []byte) error {
	g := t.edge
	if g == nil || g.edits != t.edits || t.edits == 0 {
		return t.findEdge(a, fill, key)
	}
	if g.some && bytes.Compare(g.key, key) >= 0 {
		return ErrUnordered
	}
	g.appender, g.fill = a, fill
	t.edits++
	return nil
}

// findEdge is toEdge if the edge is not known.
func (t *Tree) findEdge(a Appender, fill float64, key []byte) error {
	if t.edit == nil {
		return errReadOnly
	}
	made := t.edge == nil
	if made {
		t.edge = new(edge)
	}
	g := t.edge
	g.appender, g.fill = a, fill
	if t.Empty() {
		t.node = t.edit.arena.newNode(true)
		*g = edge{path: g.path[:0], leaf: t.node, key: g.key[:0], before: g.before, appender: a, fill: fill}
		t.edits++
		return nil
	}
	if err := a.Quietly(t.findLast); err != nil {
		return err
	}
	if made {
		g.before = bytes.Clone(g.key)
	}
	if g.some && bytes.Compare(g.key, key) >= 0 {
		return ErrUnordered
	}
	find := func() error { return a.Quietly(t.openEdge) }
	if t.spilled { // branches of pages that may be given up become nodes
		find = t.openEdge
	}
	if err := find(); err != nil {
		return err
	}
	t.edits++
	return nil
}

// appended notes that key was appended, unless that ended with err, which it returns.
func (t *Tree) appended(key []byte, err error) error {
	if err != nil {
		return err
	}
	g := t.edge
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
	waste := int64(maxLoneWaste)
	if t.edge.fill == TightFill && taken < WideFill*ps {
		waste = maxWideWaste
	}
	return (taken-used)*waste <= taken
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

// openEdge turns the branches at the right edge into nodes.
func (t *Tree) openEdge() error {
	g := t.edge
	g.lent = true // an edit may have moved elements to other nodes
	for {
		empty, err := t.descendEdge()
		if err != nil {
			return err
		}
		if !empty {
			return nil
		}
		if err := t.prune(); err != nil {
			return err
		}
	}
}

// descendEdge is openEdge but for the empty leaf, not the root, at which it may end.
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
	t.node = t.edit.arena.newNode(true)
	return nil
}

// appendSmall gathers an element in the last leaf, in memory of the edge if it is said to be gathered.
func (t *Tree) appendSmall(it *item) error {
	g := t.edge
	ps := t.edit.w.PageSize()
	if g.leaf == nil && g.page.Valid() {
		if err := t.reopen(itemSize(it)); err != nil {
			return err
		}
	}
	n := g.leaf
	if n == nil {
		n = t.edit.arena.newNode(true)
	}
	if int64(n.size)+int64(len(it.key)+page.LeafElementSize)+int64(len(it.value)) > math.MaxInt {
		return ErrTooLarge
	}
	batch := batchPages
	if g.fill >= WideFill {
		batch += WideFill
	}
	if it.gathered {
		batch = g.gathers()
		it.key, it.value = g.keep(it.key, ps), g.keep(it.value, ps)
	}
	it.child = page.ID(t.edits)
	n.push(it)
	if g.leaf == nil {
		if err := t.appendChild(item{key: t.edit.branchKey(it), node: n}); err != nil {
			return err
		}
		g.leaf = n
	}
	if n.size < batch*ps {
		return nil
	}
	return t.completeLeaf(false)
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
	if err == nil {
		err = n.isLike(true, p.Count())
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
		if err := t.completeLeaf(true); err != nil {
			return err
		}
	}
	id, pages, err := g.appender.WriteLeaf(key, value, !e.Unsealed)
	if err != nil {
		return err
	}
	e.Stats.Spills++
	e.Stats.PagesFilled += int64(pages)
	if err := t.appendChild(item{key: e.arena.copyKey(key), child: id}); err != nil {
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
	return t.completeBranches()
}

// raise puts a branch above the root.
func (t *Tree) raise() error {
	g := t.edge
	root := t.edit.arena.newNode(false)
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
	g.path = slices.Insert(g.path, 0, root)
	return nil
}

// branchKey is the key of a leaf's first element for the branch above.
func (e *Edit) branchKey(first *item) []byte {
	if first.gathered {
		return e.arena.copyKey(first.key)
	}
	return first.key
}
