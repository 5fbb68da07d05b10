package tree

import (
	"bytes"

	"holdfast/internal/page"
)

// finger is where the last search in a tree of a writing transaction ended, with the
// bounds of the keys that belong there. A caller that goes through keys in their order, as one
// who merges sorted keys into the tree, finds the next one in the same leaf and need not
// begin at the root.
//
// It is right as long as edits is that of the tree: whatever changes which keys belong to
// the leaf, or makes a node of its page, counts an edit, or lifts the finger.
type finger struct {
	leaf      place
	low, high []byte // first key, and the first after; nil: none
	edits     uint64
	on        bool

	// The way to leaf, if that is a page: depth elements of branches; -1: not known.
	path  [fingerDepth]int32
	depth int

	// What the last search in leaf has found: who looks a key up often sets it then.
	searched bool
	key      [fingerKey]byte // a copy
	length   int             // of it
	index    int
	exact    bool
}

// fingerKey is the length of the longest key that is remembered.
const fingerKey = 40

// fingerDepth is how many branches above a leaf are remembered.
const fingerDepth = 6

// lift forgets where the last search ended.
func (t *Tree) lift() { t.work.finger.on, t.work.finger.searched = false, false }

// found remembers what a search for key in the finger's leaf has found.
func (f *finger) found(key []byte, index int, exact bool) {
	if f.searched = f.on && len(key) <= fingerKey; f.searched {
		f.length = copy(f.key[:], key)
		f.index, f.exact = index, exact
	}
}

// recall is what a search for key in the finger's leaf would find, if that was the last one
// and nothing has changed since.
func (t *Tree) recall(key []byte) (index int, exact, known bool) {
	f := &t.work.finger
	if !f.searched || !f.on || f.edits != t.edits || !bytes.Equal(f.key[:f.length], key) {
		return 0, false, false
	}
	return f.index, f.exact, true
}

// touches tells whether key belongs into the finger's leaf.
func (t *Tree) touches(key []byte) bool {
	f := &t.work.finger
	return f.on && f.edits == t.edits &&
		(f.low == nil || bytes.Compare(f.low, key) <= 0) && (f.high == nil || bytes.Compare(key, f.high) < 0)
}

// aim begins a descent from the root.
func (f *finger) aim() {
	f.on, f.searched = false, false
	f.low, f.high, f.depth = nil, nil, 0
}

// narrow takes the bounds of element i of a branch at a depth.
func (f *finger) narrow(pl *place, i, depth int) (err error) {
	if f.depth = depth + 1; depth < fingerDepth {
		f.path[depth] = int32(i)
	} else {
		f.depth = -1
	}
	if i > 0 {
		if f.low, err = pl.key(i); err != nil {
			return err
		}
	}
	if i+1 < pl.count() {
		f.high, err = pl.key(i + 1)
	}
	return err
}

// point moves the finger to the leaf in which key belongs.
func (t *Tree) point(key []byte) error {
	if t.touches(key) {
		return nil
	}
	f := &t.work.finger
	f.aim()
	var err error
	if f.leaf, err = t.rootPlace(); err != nil {
		return err
	}
	for depth := 0; !f.leaf.leaf(); depth++ {
		if depth == maxDepth {
			return f.leaf.corrupt(tooDeep)
		}
		if f.leaf.count() == 0 {
			return f.leaf.corrupt(emptyBranch)
		}
		i, err := f.leaf.descendIndex(key)
		if err != nil {
			return err
		}
		if err := f.narrow(&f.leaf, i, depth); err != nil {
			return err
		}
		if f.leaf, err = t.child(&f.leaf, i); err != nil {
			return err
		}
	}
	f.on, f.edits = f.leaf.n != &emptyLeaf, t.edits
	return nil
}

// lookupNear is lookup in a tree that can be edited.
func (t *Tree) lookupNear(key []byte, verify bool) (value []byte, flags uint32, ok bool, err error) {
	if err := t.point(key); err != nil {
		return nil, 0, false, err
	}
	f := &t.work.finger
	i, exact, err := f.leaf.search(key)
	if err != nil {
		return nil, 0, false, err
	}
	f.found(key, i, exact)
	switch {
	case !exact:
		return nil, 0, false, nil
	case f.leaf.n == nil:
		return t.valueIn(f.leaf.p, i, verify)
	}
	return t.valueOf(f.leaf.n, i, verify)
}

// editLeaf turns the path to the leaf in which key belongs into nodes.
func (t *Tree) editLeaf(key []byte) (*node, error) {
	if t.edit == nil {
		return nil, errReadOnly
	}
	f := &t.work.finger
	if t.touches(key) {
		switch {
		case f.leaf.n != nil:
			return f.leaf.n, nil
		case f.depth >= 0:
			return t.editPointed()
		}
	}
	f.aim()
	n, err := t.editRoot()
	if err != nil {
		return nil, err
	}
	for depth := 0; !n.leaf; depth++ {
		if depth == maxDepth {
			return nil, page.Corruptf(n.base, tooDeep)
		}
		i, err := n.descendIndex(key)
		if err != nil {
			return nil, err
		}
		if err := f.narrow(&place{n: n}, i, depth); err != nil {
			return nil, err
		}
		if n, err = t.editChild(n, i); err != nil {
			return nil, err
		}
	}
	f.leaf, f.on, f.edits = place{n: n}, true, t.edits
	return n, nil
}

// editPointed is editLeaf for the leaf, a page, on which the finger is.
func (t *Tree) editPointed() (*node, error) {
	f := &t.work.finger
	n, err := t.editRoot()
	for depth := 0; depth < f.depth && err == nil; depth++ {
		i := int(f.path[depth])
		if n.leaf || i >= n.count() {
			return nil, n.isLike(false, i+1)
		}
		n, err = t.editChild(n, i)
	}
	if err == nil {
		err = n.isLike(true, f.leaf.count())
	}
	if err != nil {
		return nil, err
	}
	f.leaf, f.edits = place{n: n}, t.edits
	return n, nil
}

// stay keeps the finger on n, whose elements were changed, and nothing else.
func (t *Tree) stay(n *node) {
	t.work.finger.on = t.work.finger.on && t.work.finger.leaf.n == n
	t.work.finger.edits, t.work.finger.searched = t.edits, false
}
