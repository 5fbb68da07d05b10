package tree

import (
	"bytes"
	"slices"

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

	unverified bool // the value is that of an unverified page
	gathered   bool // key and value lie in an edge's memory
}

// node is a page in memory, to be edited. It has no page number until it is
// written; base is what it replaces.
//
// A node begins thin: it keeps its page and notes only what is another now. A branch
// notes which children are nodes: if all of them are written to one run each, under
// the same first key, it becomes a copy of its page with other children. A leaf of
// one page notes a few values that replace some of the same length, and a few new elements
// between those that it has, as long as it stays one page. Anything more
// makes a node thick first: its elements become items.
type node struct {
	items     []item // ascending by key; empty while thin
	thin      page.Page
	changes   []change // of a thin node, ascending by index
	added     int      // changes that are new elements
	addedSize int      // bytes that they take
	base      page.ID
	basePages uint64 // 0: it replaces no page
	size      int    // bytes as one page
	leaf      bool
	shrunk    bool // something was removed: it may be too empty
	grown     bool // something was inserted before the end
	appended  bool // something was inserted at the end

	whole  bool    // it becomes one run again, if that is no longer
	fill   float64 // 0: as the tree finds best; else see Pack
	marked bool    // see Edit.Sweep
}

// change is an element of a thin node that is another now: of a branch, a child that
// is a node, or was one and is written; of a leaf, a value, or an element that its page
// does not have. The index is that of the element in the node, new ones counted.
type change struct {
	index int
	node  *node
	id    page.ID // once written
	key   []byte  // of a new element
	flags uint32
	value []byte
}

// maxThinChanges is how many values of a thin leaf are replaced, and elements added,
// before it is made thick.
const maxThinChanges = 16

// open makes an empty node stand for page p. full is the size of a page that is full.
func (n *node) open(p page.Page, full int) error {
	// A leaf of more than one page, and an inline one, would not become a copy. (So one
	// that does is never unverified.)
	if p.IsLeaf() && (p.ID() == 0 || p.Overflow() > 0 || p.End() > uint64(full)) {
		return n.load(p)
	}
	n.leaf = p.IsLeaf()
	n.thin = p
	n.base, n.basePages = p.ID(), p.Pages()
	return nil
}

// thicken turns the elements of a thin node into items.
func (n *node) thicken() error {
	if !n.thin.Valid() {
		return nil
	}
	if err := n.load(n.thin); err != nil {
		return err
	}
	n.thin = page.Page{}
	n.added, n.addedSize = 0, 0
	for _, c := range n.changes {
		if c.key != nil { // those before it have been put in
			n.insert(c.index, item{key: c.key, value: c.value, flags: c.flags})
			continue
		}
		it := &n.items[c.index]
		switch {
		case n.leaf:
			it.value, it.unverified = c.value, false
		case c.node == nil:
			it.child = c.id
		default:
			it.node = c.node
		}
	}
	clear(n.changes)
	n.changes = n.changes[:0]
	return nil
}

// count is the number of elements.
func (n *node) count() int {
	if n.thin.Valid() {
		return n.thin.Count() + n.added
	}
	return len(n.items)
}

// key is the key of element i.
func (n *node) key(i int) ([]byte, error) {
	if n.thin.Valid() {
		if at, ok := n.change(i); ok && n.changes[at].key != nil {
			return n.changes[at].key, nil
		}
		return n.thin.Key(n.pageIndex(i))
	}
	return n.items[i].key, nil
}

// find is Page.Search for a node.
func (n *node) find(key []byte) (int, bool, error) {
	if !n.thin.Valid() {
		i, exact := n.search(key)
		return i, exact, nil
	}
	i, exact, err := n.thin.Search(key)
	if err != nil || n.added == 0 {
		return i, exact, err
	}
	for _, c := range n.changes {
		if c.key == nil {
			continue
		}
		switch bytes.Compare(c.key, key) {
		case 0:
			return c.index, true, nil
		case 1:
			return i, exact, nil
		}
		i++
	}
	return i, exact, nil
}

// pageIndex is where its page has element i of a thin node, which is not a new one.
func (n *node) pageIndex(i int) int {
	if n.added == 0 {
		return i
	}
	before := 0
	for _, c := range n.changes {
		if c.index >= i {
			break
		}
		if c.key != nil {
			before++
		}
	}
	return i - before
}

// child is child i of a branch: a node, or nil and its page.
func (n *node) child(i int) (*node, page.ID) {
	if !n.thin.Valid() {
		it := &n.items[i]
		return it.node, it.child
	}
	if at, ok := n.change(i); ok {
		return n.changes[at].node, n.changes[at].id
	}
	return nil, n.thin.Child(i)
}

// change is where the change of element i of a thin node is, or belongs.
func (n *node) change(i int) (int, bool) {
	return slices.BinarySearchFunc(n.changes, i, func(c change, i int) int { return c.index - i })
}

// element is element i of a leaf. unverified says that its value is that of an
// unverified page.
func (n *node) element(i int) (e page.Element, unverified bool, err error) {
	if !n.thin.Valid() {
		it := &n.items[i]
		return page.Element{Flags: it.flags, Key: it.key, Value: it.value}, it.unverified, nil
	}
	at, ok := n.change(i)
	if ok && n.changes[at].key != nil {
		c := &n.changes[at]
		return page.Element{Flags: c.flags, Key: c.key, Value: c.value}, false, nil
	}
	e, err = n.thin.Leaf(n.pageIndex(i))
	if ok {
		e.Value = n.changes[at].value
	}
	return e, false, err
}

// replace makes value that of element i of a thin leaf, if it has the length of the one
// there. false: the leaf has to be thick for that.
func (n *node) replace(i int, e page.Element, value []byte, flags uint32) bool {
	if !n.thin.Valid() || e.Flags != flags || len(e.Value) != len(value) {
		return false
	}
	at, ok := n.change(i)
	switch {
	case ok:
		n.changes[at].value = value
	case len(n.changes) == maxThinChanges:
		return false
	default:
		n.changes = slices.Insert(n.changes, at, change{index: i, value: value})
	}
	return true
}

// addThin makes it, which is no element yet, element i of a thin leaf, unless that is the
// last or does not fit into full bytes: the leaf has to be thick for that.
func (n *node) addThin(i int, it item, full int) bool {
	size := uint64(page.LeafElementSize) + uint64(len(it.key)) + uint64(len(it.value))
	if !n.thin.Valid() || len(n.changes) == maxThinChanges || i == n.count() || uint64(n.addedSize)+n.thin.End()+size > uint64(full) {
		return false
	}
	at, _ := n.change(i)
	for j := at; j < len(n.changes); j++ {
		n.changes[j].index++
	}
	n.changes = slices.Insert(n.changes, at, change{index: i, key: it.key, flags: it.flags, value: it.value})
	n.added++
	n.addedSize += int(size)
	return true
}

// setChild makes c child i of a branch.
func (n *node) setChild(i int, c *node) {
	if !n.thin.Valid() {
		n.items[i].node = c
		return
	}
	at, _ := n.change(i)
	n.changes = slices.Insert(n.changes, at, change{index: i, node: c})
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
			*it = item{key: e.Key, value: e.Value, flags: e.Flags, unverified: p.Unverified()}
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

// descendIndex is the child of a branch in which key belongs.
func (n *node) descendIndex(key []byte) (int, error) {
	i, exact, err := n.find(key)
	if err != nil {
		return 0, err
	}
	if n.count() == 0 {
		return 0, page.Corruptf(n.base, emptyBranch)
	}
	if !exact && i > 0 {
		i--
	}
	return i, nil
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

// resize computes the size anew.
func (n *node) resize() {
	n.size = page.HeaderSize
	for i := range n.items {
		n.size += itemSize(&n.items[i])
	}
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
func (t *Tree) splitInMemory(key []byte) error {
	t.lift()
	var path [maxDepth + 1]*node
	depth := 0
	for n := t.node; ; depth++ {
		path[depth] = n
		if n.leaf {
			break
		}
		i, err := n.descendIndex(key)
		if err != nil {
			return err
		}
		n, _ = n.child(i)
	}
	for d := depth; d >= 0; d-- {
		n := path[d]
		if !n.tooLong() {
			return nil
		}
		right := t.edit.arena.newNode(n.leaf)
		n.halve(right)
		if d == 0 {
			root := t.edit.arena.newNode(false)
			root.insert(0, item{key: n.items[0].key, node: n})
			t.node = root
			path[0] = root
			root.insert(1, item{key: right.items[0].key, node: right})
			return nil
		}
		parent := path[d-1]
		if err := parent.thicken(); err != nil {
			return err
		}
		i, err := parent.descendIndex(n.items[0].key)
		if err != nil {
			return err
		}
		parent.insert(i+1, item{key: right.items[0].key, node: right})
	}
	return nil
}

// halve moves the second half of a node that has become too long to right, or the last
// items if it is long because of appending.
func (n *node) halve(right *node) {
	cut := len(n.items) / 2
	if !n.grown {
		cut = len(n.items) - 1
		if !n.leaf {
			cut-- // a branch has two children
		}
	}
	right.grown, right.appended = n.grown, n.appended
	n.moveTail(cut, right)
}

func (n *node) tooLong() bool {
	if n.size > maxNodeBytes && len(n.items) > 3 {
		return true
	}
	return len(n.items) > maxNodeItems && (n.grown || len(n.items) > maxAppendItems)
}

// maxNodeBytes is the size from which on a node is split while it is in memory.
const maxNodeBytes = 1 << 30

// arena hands out nodes and key copies of one writing transaction. Nodes are
// used again by the next; key copies are not, because a program may still hold
// a key that it read.
type arena struct {
	nodes []*node
	used  int
	keys  []byte
	held  int64 // see Edit.Held
	swept bool  // memory is short, see Edit.Sweep
}

const (
	minKeyChunk = 64
	maxKeyChunk = 32 << 10
	// maxKeptItems bounds the items that all nodes together keep between
	// transactions: about 9 MiB. A node of more than maxNodeItems keeps none.
	maxKeptItems = 1 << 17
	// Those bounds for a transaction that gives memory back: enough for nodes of full pages.
	maxSweptItems     = 1 << 15
	maxSweptNodeItems = 256
)

// About what a node takes in memory, with the buffer of the page that it becomes, and an
// element that is put into one, beside key and value.
const (
	heldNode = 8 << 10
	heldItem = 120
)

func (a *arena) newNode(leaf bool) *node {
	if a.used == len(a.nodes) {
		a.nodes = append(a.nodes, new(node))
	}
	n := a.nodes[a.used]
	a.used++
	a.held += heldNode
	*n = node{items: n.items, changes: n.changes, leaf: leaf, size: page.HeaderSize}
	return n
}

func (a *arena) reset() {
	a.clear(0)
	a.keys, a.held, a.swept = nil, 0, false
}

// clear makes the nodes from the given one on unused.
func (a *arena) clear(from int) {
	kept, most, longest := 0, maxKeptItems, 2*maxNodeItems
	if a.swept {
		most, longest = maxSweptItems, maxSweptNodeItems
	}
	for i := from; i < a.used; i++ {
		n := a.nodes[i]
		if cap(n.items) > longest {
			n.items = nil
		}
		if kept += cap(n.items) + cap(n.changes); kept > most {
			clear(a.nodes[i:])
			a.nodes = a.nodes[:i]
			break
		}
		clear(n.items) // let go of values and mappings; behind them all is zero
		n.items = n.items[:0]
		clear(n.changes)
		n.changes = n.changes[:0]
		n.thin = page.Page{}
	}
	a.used = from
}

func (a *arena) copyKey(key []byte) []byte {
	if len(key) > cap(a.keys)-len(a.keys) {
		size := min(max(2*cap(a.keys), minKeyChunk), maxKeyChunk)
		a.keys = make([]byte, 0, max(size, len(key)))
	}
	a.held += heldItem + 2*int64(len(key))
	at := len(a.keys)
	a.keys = append(a.keys, key...)
	return a.keys[at:len(a.keys):len(a.keys)]
}
