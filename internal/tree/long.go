package tree

import "holdfast/internal/page"

// Nodes that are too long are split while they are in memory, long before they are written, so
// that an edit of one moves few items.

// nodePath is the way from the root to a leaf, all nodes, and which child of each is the next.
type nodePath struct {
	node  [maxDepth + 1]*node
	index [maxDepth + 1]int
	depth int // of the leaf
}

// pathTo finds the way to the leaf of key, which must not be used after nodes have changed. The caller
// moves keys to other nodes: so the finger is lifted.
func (t *Tree) pathTo(key []byte, path *nodePath) error {
	pointed := t.pointed(key, path)
	t.lift()
	if pointed {
		return nil
	}
	path.depth = 0
	for n := t.node; ; path.depth++ {
		path.node[path.depth] = n
		if n.leaf {
			return nil
		}
		i, err := n.descendIndex(key)
		if err != nil {
			return err
		}
		path.index[path.depth] = i
		if n, _ = n.child(i); n == nil {
			return page.Corruptf(path.node[path.depth].base, "a key is not in the leaf to which it belongs")
		}
	}
}

// pointed is pathTo where the finger is on the leaf and its way is known; false if not. To search each branch
// again took a sixth of the time of removing blobs, whose leaves have one element each.
func (t *Tree) pointed(key []byte, path *nodePath) bool {
	f := &t.work.finger
	if f.leaf.n == nil || f.depth < 0 || !t.touches(key) {
		return false
	}
	n := t.node
	for path.depth = 0; path.depth < f.depth; path.depth++ {
		i := int(f.path[path.depth])
		if n == nil || n.leaf || i >= n.count() {
			return false
		}
		path.node[path.depth], path.index[path.depth] = n, i
		n, _ = n.child(i)
	}
	path.node[path.depth] = n
	return n == f.leaf.n
}

// splitInMemory splits the nodes on the path to key that have become too long.
// Nodes have no page yet, so this costs nothing on disk.
func (t *Tree) splitInMemory(key []byte) error {
	var path nodePath
	if err := t.pathTo(key, &path); err != nil {
		return err
	}
	return t.splitUp(&path, path.depth)
}

// splitAround splits the leaf of key in halves until it has no more than maxNodeItems. It is for
// a long leaf to which keys were appended, which are now removed from its middle.
func (t *Tree) splitAround(key []byte) error {
	for {
		var path nodePath
		if err := t.pathTo(key, &path); err != nil {
			return err
		}
		leaf := path.node[path.depth]
		if len(leaf.items) <= maxNodeItems {
			return nil
		}
		if err := t.splitAt(&path, path.depth, len(leaf.items)/2); err != nil {
			return err
		}
		if err := t.splitUp(&path, path.depth-1); err != nil {
			return err
		}
	}
}

// splitUp splits the nodes of a path that are too long, from a depth up.
func (t *Tree) splitUp(path *nodePath, depth int) error {
	for ; depth >= 0 && path.node[depth].tooLong(); depth-- {
		if err := t.splitAt(path, depth, path.node[depth].half()); err != nil {
			return err
		}
	}
	return nil
}

// splitAt moves the items from cut on of the node at a depth of the path to a new one after it.
func (t *Tree) splitAt(path *nodePath, depth, cut int) error {
	n := path.node[depth]
	if depth > 0 {
		if err := path.node[depth-1].thicken(); err != nil {
			return err
		}
	}
	right := t.edit.arena.newNode(n.leaf)
	n.splitOff(cut, right)
	if depth == 0 {
		t.node = t.edit.arena.newNode(false)
		t.node.insert(0, item{key: n.items[0].key, node: n})
		t.node.insert(1, item{key: right.items[0].key, node: right})
		return nil
	}
	path.node[depth-1].insert(path.index[depth-1]+1, item{key: right.items[0].key, node: right})
	return nil
}

// splitOff moves the items from cut on to right, a new node.
func (n *node) splitOff(cut int, right *node) {
	right.grown, right.appended = n.grown, n.appended
	n.moveTail(cut, right)
}

// half is where a node that has become too long is split: in the middle, or before the last
// items if it is long because of appending.
func (n *node) half() int {
	switch {
	case n.grown:
		return len(n.items) / 2
	case n.leaf:
		return len(n.items) - 1
	}
	return len(n.items) - 2 // a branch has two children
}

func (n *node) tooLong() bool {
	if n.size > maxNodeBytes && len(n.items) >= minSplit {
		return true
	}
	return len(n.items) > maxNodeItems && (n.grown || len(n.items) > maxAppendItems)
}

// maxNodeBytes is the size from which on a node is split while it is in memory.
const maxNodeBytes = 1 << 30
