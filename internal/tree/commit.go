package tree

import (
	"bytes"
	"slices"

	"holdfast/internal/page"
)

// InlineSize is the size of the page that an edited tree of one leaf takes as
// an inline bucket. ok is false if it holds a bucket, is not a leaf or takes more
// than limit bytes.
func (t *Tree) InlineSize(limit int) (size int, ok bool) {
	n := t.node
	if n == nil || !n.leaf || n.thin.Valid() && (n.thin.End() > uint64(limit) || n.thicken() != nil) {
		return 0, false // and Write will say what is wrong with it
	}
	if n.size > limit || len(n.items) > page.MaxCount {
		return 0, false
	}
	for i := range n.items {
		if n.items[i].flags&page.BucketFlag != 0 {
			return 0, false
		}
	}
	return n.size, true
}

// Inline encodes the tree as an inline page into buf, of InlineSize bytes, and
// frees the page that it came from.
func (t *Tree) Inline(buf []byte) error {
	if err := t.edit.verifyItems(t.node.items); err != nil {
		return err
	}
	encode(buf, 0, 0, true, t.node.items)
	return t.freeBase(t.node)
}

// Write gives pages to all nodes, encodes them, frees what they replace and
// returns the new root. fill is the share of a page to fill when splitting;
// DefaultFill lets the tree choose: full pages where keys were appended, room
// for more elsewhere.
func (t *Tree) Write(fill float64) (page.ID, error) {
	if t.node == nil {
		return t.root, nil
	}
	t.edit.parts = t.edit.parts[:0]
	n := t.node
	for depth := 0; ; depth = maxDepth { // a new root has no nodes below it
		if err := t.write(n, fill, depth); err != nil {
			return 0, err
		}
		parts := t.edit.parts
		if len(parts) == 1 {
			break
		}
		n = t.edit.arena.newNode(false)
		n.appended = true
		for _, it := range parts {
			n.insert(len(n.items), it)
		}
		t.edit.parts = parts[:0]
	}
	t.root, t.node, t.inline = t.edit.parts[0].child, nil, page.Page{}
	t.edits++
	return t.root, nil
}

// write writes n with all below it and adds to edit.parts a branch element for
// each page run that it became.
func (t *Tree) write(n *node, fill float64, depth int) error {
	if fill == DenseFill && !n.leaf {
		if err := t.shareOut(n); err != nil {
			return err
		}
	}
	if n.thin.Valid() {
		if done, err := t.writeThin(n, fill, depth); done || err != nil {
			return err
		}
	}
	if !n.leaf {
		if err := t.writeChildren(n, fill, depth); err != nil {
			return err
		}
	}
	pages := n.basePages
	if err := t.freeBase(n); err != nil {
		return err
	}
	e := t.edit
	ps := e.w.PageSize()
	e.cuts = splitter{pageSize: ps, fill: fill, append: n.appended && !n.grown}.split(n, pages, e.cuts[:0])
	e.Stats.Spills++
	e.Stats.Splits += int64(len(e.cuts) - 1)
	from := 0
	for _, cut := range e.cuts {
		items := n.items[from:cut.end]
		pages := max((cut.size+ps-1)/ps, 1)
		if err := e.verifyItems(items); err != nil {
			return err
		}
		id, buf, err := e.w.Allocate(uint64(pages), !n.leaf || depth == 0)
		if err != nil {
			return err
		}
		e.Stats.PagesFilled += int64(pages)
		e.seal(encode(buf, id, uint32(pages-1), n.leaf, items))
		part := item{child: id}
		if len(items) > 0 {
			part.key = items[0].key
		}
		e.parts = append(e.parts, part)
		from = cut.end
	}
	n.dropItems()
	return nil
}

// writeThin writes a thin node as a copy of its page, or makes it thick.
func (t *Tree) writeThin(n *node, fill float64, depth int) (done bool, err error) {
	if n.leaf {
		return t.writeThinLeaf(n, depth)
	}
	if err := t.writeKids(n, fill, depth); err != nil || !n.thin.Valid() {
		return false, err
	}
	return true, t.writeThinBranch(n)
}

// writeKids writes the nodes below a thin branch. If one of them became more
// than one run, or one with another first key, the branch is thick afterwards.
func (t *Tree) writeKids(n *node, fill float64, depth int) error {
	base := len(t.edit.parts)
	for j := range n.changes {
		c := &n.changes[j]
		if err := t.write(c.node, fill, depth+1); err != nil {
			return err
		}
		parts := t.edit.parts[base:]
		t.edit.parts = t.edit.parts[:base]
		key, err := n.thin.Key(c.index)
		if err != nil {
			return err
		}
		if len(parts) == 1 && bytes.Equal(parts[0].key, key) {
			c.id, c.node = parts[0].child, nil
			continue
		}
		i := c.index
		if err := n.thicken(); err != nil {
			return err
		}
		n.appended = n.appended || i == len(n.items)-1
		n.grown = n.grown || i < len(n.items)-1
		n.room(len(parts))
		n.items = slices.Replace(n.items, i, i+1, parts...)
		n.resize()
		return nil
	}
	return nil
}

// writeThinLeaf writes a leaf whose elements are those of its page, but for some
// values. If the page is not as we would write it the leaf is thick afterwards.
func (t *Tree) writeThinLeaf(n *node, depth int) (done bool, err error) {
	end, ok := n.thin.Packed()
	first, _, _, some := n.thin.LeafAt(0)
	if !ok || !some || uint64(end)+uint64(n.addedSize) > uint64(fullPage(t.edit.w.PageSize())) {
		return false, n.thicken()
	}
	if n.added > 0 {
		return true, t.writeWithAdded(n, depth)
	}
	return true, t.writeCopy(n, first, depth == 0, func(buf []byte, id page.ID) (page.Encoder, error) {
		enc := page.CopyLeaf(buf, id, n.thin, end)
		for _, c := range n.changes {
			if err := enc.SetValue(c.index, c.value); err != nil {
				return enc, err
			}
		}
		return enc, nil
	})
}

// writeWithAdded writes a thin leaf that has new elements. Its page is packed.
func (t *Tree) writeWithAdded(n *node, depth int) error {
	first, err := n.key(0)
	if err != nil {
		return err
	}
	return t.writeCopy(n, first, depth == 0, func(buf []byte, id page.ID) (page.Encoder, error) {
		enc := page.NewLeaf(buf, id, n.count(), 0)
		changes, taken := n.changes, 0
		for i := range n.count() {
			changed := len(changes) > 0 && changes[0].index == i
			if changed && changes[0].key != nil {
				enc.Leaf(changes[0].flags, changes[0].key, changes[0].value)
				changes = changes[1:]
				continue
			}
			key, value, flags, ok := n.thin.LeafAt(taken)
			if !ok {
				_, err := n.thin.Leaf(taken)
				return enc, err
			}
			taken++
			if changed {
				value = changes[0].value
				changes = changes[1:]
			}
			enc.Leaf(flags, key, value)
		}
		return enc, nil
	})
}

// writeThinBranch writes a branch whose elements are those of its page, but for the
// pages of some children.
func (t *Tree) writeThinBranch(n *node) error {
	first, err := n.thin.Key(0)
	if err != nil {
		return err
	}
	return t.writeCopy(n, first, true, func(buf []byte, id page.ID) (page.Encoder, error) {
		enc, err := page.CopyBranch(buf, id, n.thin)
		if err == nil {
			for _, c := range n.changes {
				enc.SetChild(c.index, c.id)
			}
		}
		return enc, err
	})
}

// writeCopy writes a thin node as what fill makes of a buffer.
func (t *Tree) writeCopy(n *node, first []byte, hot bool, fill func([]byte, page.ID) (page.Encoder, error)) error {
	pages := n.thin.Pages()
	if err := t.freeBase(n); err != nil {
		return err
	}
	id, buf, err := t.edit.w.Allocate(pages, hot)
	if err != nil {
		return err
	}
	enc, err := fill(buf, id)
	if err != nil {
		return err
	}
	t.edit.seal(enc.End())
	t.edit.Stats.Spills++
	t.edit.Stats.PagesFilled += int64(pages)
	t.edit.parts = append(t.edit.parts, item{key: first, child: id})
	return nil
}

// writeChildren writes the nodes below branch n and puts what they became in
// their place.
func (t *Tree) writeChildren(n *node, fill float64, depth int) error {
	old := n.items
	grown := false
	base := len(t.edit.parts)
	for i := 0; i < len(old); i++ {
		c := old[i].node
		if c == nil {
			if grown {
				n.room(1)
				n.items = append(n.items, old[i])
			}
			continue
		}
		if err := t.write(c, fill, depth+1); err != nil {
			return err
		}
		parts := t.edit.parts[base:]
		t.edit.parts = t.edit.parts[:base]
		if !grown && len(parts) == 1 {
			n.size += len(parts[0].key) - len(old[i].key)
			old[i] = parts[0]
			continue
		}
		if !grown { // from here on there are more elements than there were
			grown = true
			n.items = nil
			n.room(len(old) + len(parts))
			n.items = append(n.items, old[:i]...)
			n.appended = n.appended || i == len(old)-1
			n.grown = n.grown || i < len(old)-1
		}
		n.room(len(parts))
		n.items = append(n.items, parts...)
	}
	if grown {
		n.resize()
	}
	return checkOrder(n.items)
}

// checkOrder keeps a damaged file from being written on: the first keys of the
// children must ascend.
func checkOrder(items []item) error {
	for i := 1; i < len(items); i++ {
		if bytes.Compare(items[i-1].key, items[i].key) >= 0 {
			return page.Corruptf(items[i].child, "first key is not after that of its left neighbour, page %d", items[i-1].child)
		}
	}
	return nil
}

// verifyItems verifies the values that go from unverified pages to new ones, which
// would give them a right seal.
func (e *Edit) verifyItems(items []item) error {
	for i := range items {
		if err := e.verifyItem(&items[i]); err != nil {
			return err
		}
	}
	return nil
}

// seal has the page run that was allocated last sealed when it is written: by then
// another transaction may have replaced it.
func (e *Edit) seal(end int) {
	if !e.Unsealed {
		e.w.Seal(end)
	}
}

// encode lays out items as one page run in buf and returns where they end.
func encode(buf []byte, id page.ID, overflow uint32, leaf bool, items []item) int {
	if leaf {
		e := page.NewLeaf(buf, id, len(items), overflow)
		for i := range items {
			e.Leaf(items[i].flags, items[i].key, items[i].value)
		}
		return e.End()
	}
	e := page.NewBranch(buf, id, len(items), overflow)
	for i := range items {
		e.Branch(items[i].key, items[i].child)
	}
	return e.End()
}

// AppendUnedited appends the inline page of an unedited inline tree to value,
// and nothing for a tree with a root page.
func (t *Tree) AppendUnedited(value []byte) []byte {
	if t.root != 0 || !t.inline.Valid() {
		return value
	}
	return append(value, t.inline.Bytes()...)
}
