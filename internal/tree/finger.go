package tree

import (
	"bytes"

	"holdfast/internal/page"
)

// finger is where the last search in a tree of a writing transaction ended, with the
// bounds of the keys that belong there. Whoever goes through keys in their order, as one
// who merges sorted keys into the tree, finds the next one in the same leaf and need not
// begin at the root.
//
// It is right as long as edits is that of the tree: whatever changes which keys belong to
// the leaf, or makes a node of its page, counts an edit, or lifts the finger.
type finger struct {
	leaf      place
	low, high []byte // first key, and the first behind; nil: none
	edits     uint64
	on        bool
}

// lift forgets where the last search ended.
func (t *Tree) lift() { t.finger = finger{} }

// touches tells whether key belongs into the finger's leaf.
func (t *Tree) touches(key []byte) bool {
	f := &t.finger
	return f.on && f.edits == t.edits &&
		(f.low == nil || bytes.Compare(f.low, key) <= 0) && (f.high == nil || bytes.Compare(key, f.high) < 0)
}

// narrow takes the bounds of element i of a branch.
func (f *finger) narrow(pl *place, i int) (err error) {
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
	f := &t.finger
	t.lift()
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
		if err := f.narrow(&f.leaf, i); err != nil {
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
	leaf := &t.finger.leaf
	if leaf.n == nil {
		return t.lookupFrom(leaf.p, key, verify)
	}
	return t.lookupIn(leaf.n, key, verify)
}

// editLeaf turns the path to the leaf in which key belongs into nodes.
func (t *Tree) editLeaf(key []byte) (*node, error) {
	if t.edit == nil {
		return nil, errReadOnly
	}
	if t.touches(key) && t.finger.leaf.n != nil {
		return t.finger.leaf.n, nil
	}
	t.lift()
	n, err := t.editRoot()
	if err != nil {
		return nil, err
	}
	f := &t.finger
	for depth := 0; !n.leaf; depth++ {
		if depth == maxDepth {
			return nil, page.Corruptf(n.base, tooDeep)
		}
		i, err := n.descendIndex(key)
		if err != nil {
			return nil, err
		}
		if err := f.narrow(&place{n: n}, i); err != nil {
			return nil, err
		}
		if n, err = t.editChild(n, i); err != nil {
			return nil, err
		}
	}
	f.leaf, f.on, f.edits = place{n: n}, true, t.edits
	return n, nil
}

// stay keeps the finger on n, whose elements were changed, and nothing else.
func (t *Tree) stay(n *node) {
	t.finger.on = t.finger.on && t.finger.leaf.n == n
	t.finger.edits = t.edits
}
