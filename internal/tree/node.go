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
	child page.ID // branch: the child's page, unless node is set; leaf: see born; of an unverified value: its page in Edit.lazy
	node  *node   // branch: the child, once edited
	flags uint32  // leaf

	unverified bool // the value is that of an unverified page
	gathered   bool // key and value lie in an edge's memory
}

// born is the number of the edit with which the element of a leaf was put; 0 if
// it comes from a page. It stands where a branch has its child.
func (it *item) born() uint64 {
	if it.unverified {
		return 0
	}
	return uint64(it.child)
}

// replace gives the element of a leaf another value.
func (it *item) replace(value []byte) {
	if it.value = value; it.unverified {
		it.unverified, it.child = false, 0
	}
}

// node is a page in memory, to be edited. It has no page number until it is
// written; base is what it replaces.
//
// A node begins thin: it keeps its page and notes only what is another now. A branch
// notes which children are nodes: if all of them are written to one run each, under
// the same first key, it becomes a copy of its page with other children. A leaf of
// one page notes values that replace some of the same length, and new elements
// between those that it has: a few, or many if they come in their order, as from one who merges
// sorted keys into the tree. Anything more makes a node thick first: its elements become items.
type node struct {
	arena     *arena // has the memory for items and changes; nil: the heap
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

	whole bool    // it becomes one run again, if that is no longer
	fill  float64 // 0: as the tree finds best; else see Pack
}

// change is an element of a thin node that is another now: of a branch, a child that
// is a node, or was one and is written; of a leaf, a value, or an element that its page
// does not have. The index is that of the element in the node, new ones counted.
type change struct {
	index  int
	before int // new elements before it
	node   *node
	id     page.ID // of a branch: the child, once written; of a new element: as item.born
	key    []byte  // of a new element
	flags  uint32
	value  []byte
}

// Values of a thin leaf that are replaced, and elements that are added, before it is made thick.
const (
	maxThinChanges = 16
	maxThinRun     = 256 // each after those before
	maxThinPages   = 4   // bytes of all elements
)

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

// isLike is nil if n, made of a page that was looked at before, is a leaf or branch of as many elements as that was. Else
// the file was changed from outside, and a place in that page is none in n.
func (n *node) isLike(leaf bool, count int) error {
	if n.leaf != leaf || n.count() != count {
		return page.Corruptf(n.base, "has changed since it was read: something else writes to the file")
	}
	return nil
}

// thicken turns the elements of a thin node into items.
func (n *node) thicken() error {
	if !n.thin.Valid() {
		return nil
	}
	n.room(n.count())
	if err := n.load(n.thin); err != nil {
		return err
	}
	n.thin = page.Page{}
	if n.added > 0 {
		n.grown = true
		n.size += n.addedSize
	}
	// From the end on elements move by as many as there are new ones before them.
	to := len(n.items) + n.added
	n.items = n.items[:to]
	for j := len(n.changes) - 1; j >= 0; j-- {
		c := &n.changes[j]
		shift := c.before
		if c.key != nil {
			shift++
		}
		if shift > 0 {
			copy(n.items[c.index+1:to], n.items[c.index+1-shift:to-shift])
		}
		to = c.index
		it := &n.items[to]
		switch {
		case c.key != nil:
			*it = item{key: c.key, value: c.value, flags: c.flags, child: c.id}
		case n.leaf:
			*it = n.items[to-shift]
			it.replace(c.value)
		case c.node == nil:
			it.child = c.id
		default:
			it.node = c.node
		}
	}
	n.added, n.addedSize = 0, 0
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
	at := len(n.changes)
	if last := &n.changes[at-1]; last.key != nil && bytes.Compare(last.key, key) < 0 {
		return i + n.added, exact, nil // keys often come in their order
	}
	for lo := 0; lo < at; {
		mid := int(uint(lo+at) >> 1)
		c := &n.changes[mid]
		side := c.index - c.before - i // one that is not new is before key if it is so in the page
		if c.key != nil {
			side = bytes.Compare(c.key, key)
		}
		switch {
		case side < 0:
			lo = mid + 1
		case side == 0 && c.key != nil:
			return c.index, true, nil
		default:
			at = mid
		}
	}
	return i + n.addedBefore(at), exact, nil
}

// pageIndex is where its page has element i of a thin node, which is not a new one.
func (n *node) pageIndex(i int) int {
	if n.added == 0 {
		return i
	}
	at, _ := n.change(i)
	return i - n.addedBefore(at)
}

// addedBefore is the number of new elements among the first changes of a thin node, so many.
func (n *node) addedBefore(at int) int {
	if at == len(n.changes) {
		return n.added
	}
	return n.changes[at].before
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
	lo, hi := 0, len(n.changes)
	if hi > 0 && n.changes[hi-1].index < i {
		return hi, false
	}
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); n.changes[mid].index < i {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(n.changes) && n.changes[lo].index == i
}

// element is element i of a leaf. Its value may be unverified if n is not thin.
func (n *node) element(i int) (e page.Element, err error) {
	if !n.thin.Valid() {
		it := &n.items[i]
		return page.Element{Flags: it.flags, Key: it.key, Value: it.value}, nil
	}
	at, ok := n.change(i)
	if ok && n.changes[at].key != nil {
		c := &n.changes[at]
		return page.Element{Flags: c.flags, Key: c.key, Value: c.value}, nil
	}
	e, err = n.thin.Leaf(n.pageIndex(i))
	if ok {
		e.Value = n.changes[at].value
	}
	return e, err
}

// born is the number of the edit with which element i of a leaf was put, see item.born.
func (n *node) born(i int) uint64 {
	if !n.thin.Valid() {
		return n.items[i].born()
	}
	if n.added > 0 {
		if at, ok := n.change(i); ok && n.changes[at].key != nil {
			return uint64(n.changes[at].id)
		}
	}
	return 0
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
	case !n.mayChange(at):
		return false
	default:
		n.addChange(at, change{index: i, before: n.addedBefore(at), value: value})
	}
	return true
}

// mayChange tells whether a thin leaf may have one more change, at at.
func (n *node) mayChange(at int) bool {
	return len(n.changes) < maxThinChanges || at == len(n.changes) && at < maxThinRun
}

// addThin makes it, which is not an element yet, element i of a thin leaf, unless that is the
// last or makes it much longer than a page, of full bytes: the leaf has to be thick for that.
func (n *node) addThin(i int, it item, full int) bool {
	size := uint64(page.LeafElementSize) + uint64(len(it.key)) + uint64(len(it.value))
	if !n.thin.Valid() || i == n.count() || uint64(n.addedSize)+n.thin.End()+size > maxThinPages*uint64(full) {
		return false
	}
	at, _ := n.change(i)
	if !n.mayChange(at) {
		return false
	}
	before := n.addedBefore(at)
	for j := at; j < len(n.changes); j++ {
		n.changes[j].index++
		n.changes[j].before++
	}
	n.addChange(at, change{index: i, before: before, id: it.child, key: it.key, flags: it.flags, value: it.value})
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
	n.addChange(at, change{index: i, node: c})
}

// load fills an empty node from a page. Keys and values stay where they are. On a damaged page
// many elements may share bytes, which would be written once for each.
func (n *node) load(p page.Page) error {
	count := p.Count()
	n.room(count)
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
		if n.size > len(p.Bytes()) {
			return page.Corruptf(p.ID(), "elements share bytes: the first %d take more than the page's %d", i+1, len(p.Bytes()))
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
		n.push(&it)
		return
	}
	n.grown = true
	n.room(1)
	n.items = append(n.items, item{})
	copy(n.items[i+1:], n.items[i:])
	n.items[i] = it
	n.size += itemSize(&it)
}

// push is insert at the end.
func (n *node) push(it *item) {
	n.appended = true
	n.room(1)
	n.items = append(n.items, *it)
	n.size += itemSize(it)
}

// remove takes item i out and returns how many it has moved for that.
func (n *node) remove(i int) (moved int) {
	n.size -= itemSize(&n.items[i])
	last := len(n.items) - 1
	if i == 0 { // as those do who empty a tree from its beginning
		n.items[0] = item{}
		n.items = n.items[1:]
		return 0
	}
	moved = copy(n.items[i:], n.items[i+1:])
	n.items[last] = item{}
	n.items = n.items[:last]
	return moved
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
	to.room(len(n.items) - i)
	to.items = append(to.items, n.items[i:]...)
	clear(n.items[i:])
	n.items = n.items[:i]
}
