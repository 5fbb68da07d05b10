package tree

import (
	"bytes"

	"holdfast/internal/page"
)

// Spill brings the tree to pages of w, in the middle of a transaction, as Merge and Write do
// at its end: it can be edited on afterwards. A tree of one leaf that takes at most inline bytes
// keeps its node. Nodes that the tree had are used no more, but their memory is only free after
// Edit.Sweep. After an error the tree is of no use.
func (t *Tree) Spill(w Writer, fill float64, inline int) error {
	t.lift()
	if t.node == nil {
		return nil
	}
	// Also if Merge leaves no node: the root may then be a page that Append has made.
	t.spilled = true
	err := t.Merge()
	t.edits++
	if err != nil || t.node == nil {
		return err
	}
	if _, ok := t.InlineSize(inline); ok {
		return nil
	}
	before := t.edit.w
	t.edit.w = w
	defer func() { t.edit.w = before }()
	t.spilled = true
	_, err = t.Write(fill)
	return err
}

// Clear makes the tree an empty one, and gives up nothing.
func (t *Tree) Clear() {
	t.lift()
	t.root, t.node, t.inline = 0, nil, page.Page{}
	t.edits++
}

// Early tells whether the tree has, or had, pages that were written early: by Spill or Append.
func (t *Tree) Early() bool { return t.spilled || t.edge != nil }

// Holds tells whether the tree, as Spill left it, may refer to pages that were written before.
// outer says that its inline page, if it was one, may lie in such a page.
func (t *Tree) Holds(outer bool) bool {
	return outer && t.node == nil && t.inline.Valid()
}

// Held is about how many bytes the edits have in memory, values that are not copied included, and
// will have in page buffers.
func (e *Edit) Held() int64 { return e.arena.held }

// Own copies the keys and values of a tree to which Spill has left its node, a small leaf: they
// may lie in pages of the transaction's own that were given up, or in the caller's memory.
func (t *Tree) Own() {
	n := t.node
	total := 0
	for i := range n.items {
		total += len(n.items[i].key) + len(n.items[i].value)
	}
	mem := make([]byte, 0, total)
	take := func(b []byte) []byte {
		at := len(mem)
		mem = append(mem, b...)
		return mem[at:len(mem):len(mem)]
	}
	for i := range n.items {
		it := &n.items[i]
		it.key, it.value, it.gathered = take(it.key), take(it.value), false
	}
	t.edits++
}

// OwnValues copies the values of the nodes of a tree that Spill does not write, but those with flags, which are buckets: they may lie in
// the caller's memory.
func (t *Tree) OwnValues() {
	if t.node != nil {
		t.node.ownValues()
		t.edits++
	}
}

func (n *node) ownValues() {
	for i := range n.items {
		switch it := &n.items[i]; {
		case !n.leaf && it.node != nil:
			it.node.ownValues()
		case n.leaf && it.flags == 0 && !it.gathered && !it.unverified: // born is that of the element, which may have got another value
			it.value = bytes.Clone(it.value)
		}
	}
	for i := range n.changes {
		switch c := &n.changes[i]; {
		case !n.leaf && c.node != nil:
			c.node.ownValues()
		case n.leaf && c.flags == 0:
			c.value = bytes.Clone(c.value)
		}
	}
}

// Sweep makes the memory of all nodes free but of those that the trees have which are given: these go to the spare arena, and back
// to the one that is in use. So only that one grows with what is edited between two calls.
func (e *Edit) Sweep(trees []*Tree) {
	keys := e.arena.keys // has room, and a program may hold some
	e.spare.take(trees)
	e.arena.swept, e.spare.swept = true, true
	e.arena.reset()
	e.arena.take(trees)
	e.arena.keys = keys
	e.spare.reset()
}

// take moves the nodes of trees to a.
func (a *arena) take(trees []*Tree) {
	for _, t := range trees {
		if t.node == nil {
			continue
		}
		t.lift()
		t.node = a.move(t.node)
		t.edits++ // others may know its nodes
	}
}
