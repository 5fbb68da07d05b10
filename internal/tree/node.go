package tree

import (
	"bytes"

	"holdfast/internal/page"
)

// maxNodeItems is the number of items from which on a node is split while it
// is still in memory, so that an insert into it stays cheap. Appending does not
// move items and may go on up to maxAppendItems.
const (
	maxNodeItems   = 512
	maxAppendItems = 1 << 15
)

// item is one element of a node.
type item struct {
	key   []byte
	value []byte  // leaf
	child page.ID // branch: the child's page, unless node is set
	node  *node   // branch: the child, once edited
	flags uint32  // leaf
}

// node is a page in memory, to be edited. It has no page number until it is
// written; base is what it replaces.
type node struct {
	items     []item // ascending by key
	base      page.ID
	basePages uint64 // 0: it replaces no page
	size      int    // bytes as one page
	leaf      bool
	shrunk    bool // something was removed: it may be too empty
	grown     bool // something was inserted before the end
	appended  bool // something was inserted at the end
}

// load fills an empty node from a page. Keys and values stay where they are.
func (n *node) load(p page.Page) error {
	count := p.Count()
	if cap(n.items) < count {
		n.items = make([]item, 0, count+1+count/4)
	}
	n.items = n.items[:count]
	n.size = page.HeaderSize + count*page.LeafElementSize
	n.leaf = p.IsLeaf()
	if id := p.ID(); id != 0 {
		n.base, n.basePages = id, p.Pages()
	}
	for i := range n.items {
		it := &n.items[i]
		if n.leaf {
			e, err := p.Leaf(i)
			if err != nil {
				return err
			}
			*it = item{key: e.Key, value: e.Value, flags: e.Flags}
			n.size += len(e.Key) + len(e.Value)
		} else {
			k, c, err := p.Branch(i)
			if err != nil {
				return err
			}
			*it = item{key: k, child: c}
			n.size += len(k)
		}
		if i > 0 && bytes.Compare(n.items[i-1].key, it.key) >= 0 {
			return page.Corruptf(p.ID(), "keys of elements %d and %d are not in ascending order", i-1, i)
		}
	}
	return nil
}

func (n *node) search(key []byte) (int, bool) {
	lo, hi := 0, len(n.items)
	if hi > 0 { // appending is common and needs one comparison only
		switch bytes.Compare(n.items[hi-1].key, key) {
		case -1:
			return hi, false
		case 0:
			return hi - 1, true
		}
	}
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch bytes.Compare(n.items[mid].key, key) {
		case 0:
			return mid, true
		case -1:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}

// descendIndex is the child in which key belongs. n has at least one item.
func (n *node) descendIndex(key []byte) int {
	i, exact := n.search(key)
	if !exact && i > 0 {
		i--
	}
	return i
}

// itemSize is the bytes that it takes on a page. (Leaf and branch elements are
// of the same size.)
func itemSize(it *item) int { return page.LeafElementSize + len(it.key) + len(it.value) }

func (n *node) insert(i int, it item) {
	if i == len(n.items) {
		n.appended = true
		n.items = append(n.items, it)
	} else {
		n.grown = true
		n.items = append(n.items, item{})
		copy(n.items[i+1:], n.items[i:])
		n.items[i] = it
	}
	n.size += itemSize(&it)
}

func (n *node) remove(i int) {
	n.size -= itemSize(&n.items[i])
	last := len(n.items) - 1
	copy(n.items[i:], n.items[i+1:])
	n.items[last] = item{}
	n.items = n.items[:last]
}

// moveTail moves the items from i on to the end of to.
func (n *node) moveTail(i int, to *node) {
	for j := i; j < len(n.items); j++ {
		s := itemSize(&n.items[j])
		n.size -= s
		to.size += s
	}
	to.items = append(to.items, n.items[i:]...)
	clear(n.items[i:])
	n.items = n.items[:i]
}

// splitInMemory splits the nodes on the path to key that have become too long.
// Nodes have no page yet, so this costs nothing on disk.
func (t *Tree) splitInMemory(key []byte) {
	var path [maxDepth + 1]*node
	depth := 0
	for n := t.node; ; depth++ {
		path[depth] = n
		if n.leaf {
			break
		}
		n = n.items[n.descendIndex(key)].node
	}
	for d := depth; d >= 0; d-- {
		n := path[d]
		if !n.tooLong() {
			return
		}
		right := t.edit.arena.newNode(n.leaf)
		cut := len(n.items) / 2
		if !n.grown {
			cut = len(n.items) - 1
			if !n.leaf {
				cut-- // a branch has two children
			}
		}
		right.grown, right.appended = n.grown, n.appended
		n.moveTail(cut, right)
		if d == 0 {
			root := t.edit.arena.newNode(false)
			root.insert(0, item{key: n.items[0].key, node: n})
			t.node = root
			path[0] = root
			root.insert(1, item{key: right.items[0].key, node: right})
			return
		}
		parent := path[d-1]
		i := parent.descendIndex(n.items[0].key)
		parent.insert(i+1, item{key: right.items[0].key, node: right})
	}
}

func (n *node) tooLong() bool {
	return len(n.items) > maxNodeItems && (n.grown || len(n.items) > maxAppendItems)
}

// arena hands out nodes and key copies of one writing transaction. Nodes are
// used again by the next; key copies are not, because a program may still hold
// a key that it read.
type arena struct {
	nodes []*node
	used  int
	keys  []byte
}

const (
	minKeyChunk = 64
	maxKeyChunk = 32 << 10
	// maxKeptItems bounds the items that all nodes together keep between
	// transactions: about 9 MiB. A node of more than maxNodeItems keeps none.
	maxKeptItems = 1 << 17
)

func (a *arena) newNode(leaf bool) *node {
	if a.used == len(a.nodes) {
		a.nodes = append(a.nodes, new(node))
	}
	n := a.nodes[a.used]
	a.used++
	*n = node{items: n.items, leaf: leaf, size: page.HeaderSize}
	return n
}

func (a *arena) reset() {
	kept := 0
	for i, n := range a.nodes[:a.used] {
		if cap(n.items) > 2*maxNodeItems {
			n.items = nil
		}
		if kept += cap(n.items); kept > maxKeptItems {
			clear(a.nodes[i:])
			a.nodes = a.nodes[:i]
			break
		}
		clear(n.items) // let go of values and mappings; behind them all is zero
		n.items = n.items[:0]
	}
	a.used = 0
	a.keys = nil
}

func (a *arena) copyKey(key []byte) []byte {
	if len(key) > cap(a.keys)-len(a.keys) {
		size := min(max(2*cap(a.keys), minKeyChunk), maxKeyChunk)
		a.keys = make([]byte, 0, max(size, len(key)))
	}
	at := len(a.keys)
	a.keys = append(a.keys, key...)
	return a.keys[at:len(a.keys):len(a.keys)]
}
