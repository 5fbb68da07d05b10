package tree

import (
	"errors"

	"holdfast/internal/page"
)

// Merge prepares an edited tree for writing: nodes that have become too empty
// are joined with a neighbour, branches with one child vanish. Call it once,
// before Inline or Write.
func (t *Tree) Merge() error {
	if t.node == nil {
		return nil
	}
	t.lift()
	if err := t.merge(t.node, 0); err != nil {
		return err
	}
	for t.node != nil && !t.node.leaf && t.node.count() <= 1 {
		if err := t.dropRoot(); err != nil {
			return err
		}
	}
	return nil
}

// dropRoot replaces a root branch of at most one child by that child.
func (t *Tree) dropRoot() error {
	old := t.node
	if err := old.thicken(); err != nil {
		return err
	}
	if len(old.items) == 0 {
		t.node = t.edit.arena.newNode(true)
		return t.freeBase(old)
	}
	if t.node = old.items[0].node; t.node == nil {
		t.root = old.items[0].child
	}
	return t.freeBase(old)
}

func (t *Tree) freeBase(n *node) error {
	if n.basePages == 0 {
		return nil
	}
	id, pages := n.base, n.basePages
	n.base, n.basePages = 0, 0
	return t.edit.w.Free(id, pages)
}

// underfull tells whether n should be joined with a neighbour.
func (t *Tree) underfull(n *node) bool {
	if !n.leaf && len(n.items) < 2 {
		return true
	}
	return n.size < t.edit.w.PageSize()/4
}

func (t *Tree) merge(n *node, depth int) error {
	if n.leaf {
		return nil
	}
	if depth == maxDepth {
		return page.Corruptf(n.base, tooDeep)
	}
	if !n.thin.Valid() {
		for i := range n.items {
			if c := n.items[i].node; c != nil {
				if err := t.merge(c, depth+1); err != nil {
					return err
				}
			}
		}
		return t.mergeChildren(n)
	}
	shrunk := false
	for _, c := range n.changes {
		if err := t.merge(c.node, depth+1); err != nil {
			return err
		}
		shrunk = shrunk || c.node.shrunk && t.underfull(c.node)
	}
	if !shrunk {
		return nil
	}
	if err := n.thicken(); err != nil {
		return err
	}
	return t.mergeChildren(n)
}

// mergeChildren joins the children of n that have become too empty.
func (t *Tree) mergeChildren(n *node) error {
	for i := 0; i < len(n.items); {
		c := n.items[i].node
		if c == nil || !c.shrunk {
			i++
			continue
		}
		t.edit.Stats.Rebalances++
		if !t.underfull(c) {
			c.shrunk = false
			i++
			continue
		}
		next, err := t.mergeChild(n, i)
		if err != nil {
			return err
		}
		i = next
	}
	return nil
}

// mergeChild joins child i of n, which is underfull, with a neighbour, and
// returns the index to go on with. Between damaged neighbours it stays as it is:
// if the commit failed, nothing could ever be deleted beside them.
func (t *Tree) mergeChild(n *node, i int) (int, error) {
	c := n.items[i].node
	if len(c.items) == 0 {
		n.remove(i)
		n.shrunk = true
		return i, t.freeBase(c)
	}
	if len(n.items) == 1 {
		// No neighbour. n, a branch of one, gets new children when the level
		// above joins it, and c is looked at again; or n is the root and goes.
		n.shrunk = true
		return i + 1, nil
	}
	l, found, err := t.pair(n, i)
	if err != nil {
		return i, err
	}
	if !found {
		c.shrunk = false
		return i + 1, nil
	}
	left := n.items[l].node
	if err := t.join(left, n.items[l+1].node); err != nil {
		return i, err
	}
	left.shrunk = true
	n.remove(l + 1)
	n.shrunk = true
	if left.leaf {
		return l, nil
	}
	return l, t.mergeChildren(left)
}

// pair finds a neighbour with which child i of n can be joined, and makes it a node. l is the left one of the two.
func (t *Tree) pair(n *node, i int) (l int, found bool, err error) {
	for l := max(i-1, 0); l <= i && l+1 < len(n.items); l++ {
		err := t.openWhole(n, 2*l+1-i)
		var damage *page.CorruptError
		if err == nil || !errors.As(err, &damage) {
			return l, err == nil, err
		}
	}
	return 0, false, nil
}

// openWhole makes child i of n a node, unless it is damaged: then nothing has changed.
func (t *Tree) openWhole(n *node, i int) error {
	if n.items[i].node != nil {
		return nil
	}
	p, err := t.src.Page(n.items[i].child)
	if err == nil {
		p, err = t.src.Verify(p) // all of it is written anew
	}
	if err != nil {
		return err
	}
	c := t.edit.arena.newNode(p.IsLeaf())
	if err := t.edit.open(c, p); err != nil {
		return err
	}
	if err := c.thicken(); err != nil {
		return err
	}
	n.setChild(i, c)
	t.edits++
	return nil
}
