package tree

import "slices"

// DenseFill is the fill share that stands for leaves that stay full, of trees into which sorted keys that are spread over all of it
// are merged again and again. All leaves then grow by about the same share each time, and are split at about the same time, after
// which each is half empty. With DenseFill the leaves that were edited and are neighbours share what there is of them if one has
// become too long: all of them are written anyway, and about as few as can be, with room for the next time.
const DenseFill = 2.0

const (
	// denseShare is the share of a page that leaves get which were joined for that.
	denseShare = 0.875
	// maxJoined is how many leaves are joined at most: their elements are in memory at the same time.
	maxJoined = 16
)

// shareOut joins the leaves below branch n that are nodes and neighbours, and of which one is longer than a page. Each becomes
// several when it is written.
func (t *Tree) shareOut(n *node) error {
	if !t.anyLong(n) {
		return nil
	}
	if err := n.thicken(); err != nil {
		return err
	}
	for i := 0; i < len(n.items); i++ {
		count, long := t.neighbours(n.items[i:])
		if count < 2 {
			continue
		}
		if !long {
			i += count - 1
			continue
		}
		if err := t.joinRun(n, i, count); err != nil {
			return err
		}
	}
	return nil
}

// neighbours is how many of the children in items, from the first on, can be joined: leaves that are nodes. long tells whether one of
// them is longer than a page.
func (t *Tree) neighbours(items []item) (count int, long bool) {
	total := uint64(0)
	for ; count < min(maxJoined, len(items)); count++ {
		c := items[count].node
		if c == nil || !c.leaf {
			break
		}
		if total += c.length(); total > maxNodeBytes { // of few values; on 32 bits no int counts all of 16 such leaves
			break
		}
		long = long || t.isLong(c)
	}
	return count, long
}

// anyLong tells whether a leaf below branch n is longer than a page, and a node.
func (t *Tree) anyLong(n *node) bool {
	if n.thin.Valid() {
		return slices.ContainsFunc(n.changes, func(c change) bool { return t.isLong(c.node) })
	}
	return slices.ContainsFunc(n.items, func(it item) bool { return t.isLong(it.node) })
}

// isLong tells whether n is a leaf, and longer than a page.
func (t *Tree) isLong(n *node) bool {
	full := uint64(fullPage(t.edit.w.PageSize()))
	if n == nil || !n.leaf || n.length() <= full {
		return false
	}
	if !n.thin.Valid() {
		return true
	}
	used, err := n.thin.UsedBytes() // on a damaged page there may be gaps, and all of it fit into one
	return err == nil && uint64(used+n.addedSize) > full
}

// joinRun joins count leaves below n, from i on.
func (t *Tree) joinRun(n *node, i, count int) error {
	total := 0
	for j := i; j < i+count; j++ {
		total += n.items[j].node.count()
	}
	if total <= maxGroup { // long ones, which might become one run again: n is to have two children
		return nil
	}
	left := n.items[i].node
	if err := left.thicken(); err != nil {
		return err
	}
	left.room(total - len(left.items))
	for j := i + 1; j < i+count; j++ {
		if err := t.join(left, n.items[j].node); err != nil {
			return err
		}
		n.items[j].node.dropItems() // to the next one
		n.size -= itemSize(&n.items[j])
	}
	n.items = slices.Delete(n.items, i+1, i+count)
	left.whole = false
	return nil
}

// length is how many bytes n takes as one page.
func (n *node) length() uint64 {
	if n.thin.Valid() {
		return n.thin.End() + uint64(n.addedSize)
	}
	return uint64(n.size)
}
