package tree

import (
	"errors"
	"math"

	"holdfast/internal/page"
)

// maxDepth bounds the height of a tree that is believed; a deeper one is a cycle.
const maxDepth = 64

// Reader gives pages by number. Pages stay valid and unchanged as long as the
// transaction that uses the tree.
type Reader interface {
	Page(id page.ID) (page.Page, error)
	// Verify makes of a page from Page that is Unverified one that is not, or
	// finds that it is damaged. Values of an unverified page are not used.
	Verify(p page.Page) (page.Page, error)
}

// Writer gives and takes pages on behalf of the one writing transaction.
type Writer interface {
	Reader
	// PageSize is the size of a page in bytes.
	PageSize() int
	// Allocate reserves n consecutive pages and returns the buffer, n pages
	// long and of any content, that becomes theirs. The tree fills it before
	// the next call. Pages that most transactions write anew, roots and branches,
	// are hot.
	Allocate(n uint64, hot bool) (page.ID, []byte, error)
	// Seal says that the run allocated last is filled up to end, zero after that,
	// and to be sealed. From now on the tree only reads it, up to end.
	Seal(end int)
	// Free gives up the run of n pages at id, which belongs to the state that
	// the transaction began with.
	Free(id page.ID, n uint64) error
}

// ErrTooLarge is returned by an edit after which the values of one page would
// take more bytes than the processor can address.
var ErrTooLarge = errors.New("values of neighbouring keys are larger together than this processor can address")

// errReadOnly is returned by an edit of a tree opened without a Writer. The
// layers above refuse such calls before they come here.
var errReadOnly = errors.New("tree is read-only")

// Tree is one B+tree as one transaction sees it. For reading, any number of
// goroutines may use it; an edit excludes all other use.
type Tree struct {
	src    Reader
	edit   *Edit     // nil: read-only
	root   page.ID   // root page, unless inline or node is set
	inline page.Page // root page of an inline bucket
	node   *node     // root node once something was edited
	edits  uint64    // counts changes, so that cursors notice them
	edge   *edge     // nil: nothing was appended
	work   *work     // nil: read-only

	spilled bool // it has pages that Spill wrote
}

// Open is the tree whose root is page root. edit is nil for a read-only tree.
func Open(src Reader, edit *Edit, root page.ID) Tree {
	return Tree{src: src, edit: edit, root: root, work: edit.newWork()}
}

// OpenInline is the tree that consists of the one leaf page p. A tree opened
// from the zero Page is empty.
func OpenInline(src Reader, edit *Edit, p page.Page) Tree {
	return Tree{src: src, edit: edit, inline: p, work: edit.newWork()}
}

// Root is the tree's root page as of the transaction's begin; 0 for an inline
// or new tree.
func (t *Tree) Root() page.ID { return t.root }

// UneditedInline tells whether the tree is an inline page as it is in the file.
func (t *Tree) UneditedInline() bool { return t.node == nil && t.root == 0 && t.inline.Valid() }

// Edited tells whether the tree differs from its pages.
func (t *Tree) Edited() bool { return t.node != nil }

// Empty tells whether the tree has neither pages nor nodes.
func (t *Tree) Empty() bool { return t.node == nil && t.root == 0 && !t.inline.Valid() }

// place is a node or a page: one level of a descent.
type place struct {
	n *node
	p page.Page
}

func (t *Tree) rootPlace() (place, error) {
	if t.node != nil {
		return place{n: t.node}, nil
	}
	if t.root != 0 {
		p, err := t.src.Page(t.root)
		return place{p: p}, err
	}
	if t.inline.Valid() {
		return place{p: t.inline}, nil
	}
	return place{n: &emptyLeaf}, nil
}

// emptyLeaf stands for the root of a tree without pages. It is never edited.
var emptyLeaf = node{leaf: true, size: page.HeaderSize}

func (pl *place) leaf() bool {
	if pl.n != nil {
		return pl.n.leaf
	}
	return pl.p.IsLeaf()
}

func (pl *place) count() int {
	if pl.n != nil {
		return pl.n.count()
	}
	return pl.p.Count()
}

func (pl *place) search(key []byte) (int, bool, error) {
	if pl.n != nil {
		return pl.n.find(key)
	}
	return pl.p.Search(key)
}

func (pl *place) key(i int) ([]byte, error) {
	if pl.n != nil {
		return pl.n.key(i)
	}
	return pl.p.Key(i)
}

func (pl *place) element(i int) (page.Element, error) {
	if pl.n != nil {
		return pl.n.element(i)
	}
	return pl.p.Leaf(i)
}

// open makes n, an empty node, stand for page p.
func (e *Edit) open(n *node, p page.Page) error {
	if err := n.open(p, fullPage(e.w.PageSize())); err != nil {
		return err
	}
	if p.Unverified() {
		for i := range n.items {
			n.items[i].child = page.ID(len(e.lazy))
		}
		e.lazy = append(e.lazy, p)
	}
	e.Stats.Nodes++
	return nil
}

// verifyItem verifies the page of which the value of an element of a leaf is, if that is still to be done. Other pages may be damaged:
// what is in them may be replaced and deleted.
func (e *Edit) verifyItem(it *item) error {
	if !it.unverified {
		return nil
	}
	p, err := e.w.Verify(e.lazy[it.child])
	if err == nil {
		e.lazy[it.child] = p
	}
	return err
}

// verify sees to it that the value of element i of a leaf may be used.
func (t *Tree) verify(pl *place, i int) (err error) {
	switch {
	case pl.n == nil && pl.p.Unverified():
		pl.p, err = t.src.Verify(pl.p)
	case pl.n != nil && !pl.n.thin.Valid():
		err = t.edit.verifyItem(&pl.n.items[i])
	}
	return err
}

// child descends into element i of a branch.
func (t *Tree) child(pl *place, i int) (place, error) {
	var id page.ID
	if pl.n != nil {
		var c *node
		if c, id = pl.n.child(i); c != nil {
			return place{n: c}, nil
		}
	} else {
		id = pl.p.Child(i)
	}
	p, err := t.src.Page(id)
	return place{p: p}, err
}

// descendIndex is the child of a branch in which key belongs.
func (pl *place) descendIndex(key []byte) (int, error) {
	i, exact, err := pl.search(key)
	if err != nil {
		return 0, err
	}
	if !exact && i > 0 {
		i--
	}
	return i, nil
}

// corrupt names the page of a place in an error.
func (pl *place) corrupt(reason string) error {
	var id page.ID
	if pl.n != nil {
		id = pl.n.base
	} else {
		id = pl.p.ID()
	}
	return page.Corruptf(id, "%s", reason)
}

const (
	tooDeep     = "the tree is deeper than any real one: pages form a cycle"
	emptyBranch = "branch without elements"
)

// Get finds key. The element's value is valid for the transaction and must not
// be changed; its Key is not set.
func (t *Tree) Get(key []byte) (page.Element, bool, error) {
	value, flags, ok, err := t.Lookup(key)
	return page.Element{Flags: flags, Value: value}, ok, err
}

// Lookup is Get with results that fit into registers. It does not allocate.
func (t *Tree) Lookup(key []byte) (value []byte, flags uint32, ok bool, err error) {
	return t.lookup(key, true)
}

// LookupUnsealed is Lookup, but that the seal of a long leaf is not verified if that was put
// off. It is for trees that are not edited. ahead, if it is not nil, is called with each page below the root before it is read.
func (t *Tree) LookupUnsealed(key []byte, ahead func(page.ID)) (value []byte, flags uint32, ok bool, err error) {
	if ahead == nil || t.edit != nil || t.root == 0 {
		return t.lookup(key, false)
	}
	p, err := t.src.Page(t.root)
	for depth := 0; err == nil && !p.IsLeaf() && p.Count() > 0 && depth < maxDepth; depth++ {
		i, exact, failed := p.Search(key)
		if failed != nil {
			return nil, 0, false, failed
		}
		if !exact && i > 0 {
			i--
		}
		id := p.Child(i)
		ahead(id)
		p, err = t.src.Page(id)
	}
	if err != nil {
		return nil, 0, false, err
	}
	return t.lookupFrom(p, key, false) // it is the leaf, or damage
}

// lookup is Lookup; verify says that the value is used.
func (t *Tree) lookup(key []byte, verify bool) (value []byte, flags uint32, ok bool, err error) {
	if t.edit != nil {
		return t.lookupNear(key, verify)
	}
	if t.root != 0 {
		return t.lookupBelow(t.root, key, verify)
	}
	if t.inline.Valid() {
		return t.lookupFrom(t.inline, key, verify)
	}
	return nil, 0, false, nil
}

// valueOf is what lookup gives of element i of a leaf that is a node.
func (t *Tree) valueOf(n *node, i int, verify bool) (value []byte, flags uint32, ok bool, err error) {
	e, err := n.element(i)
	if err == nil && verify && !n.thin.Valid() {
		err = t.edit.verifyItem(&n.items[i])
	}
	if err != nil {
		return nil, 0, false, err
	}
	if verify {
		t.lend()
	}
	return e.Value[:len(e.Value):len(e.Value)], e.Flags, true, nil
}

// valueIn is what lookup gives of element i of a leaf that is a page.
func (t *Tree) valueIn(p page.Page, i int, verify bool) (value []byte, flags uint32, ok bool, err error) {
	if verify && p.Unverified() {
		if p, err = t.src.Verify(p); err != nil {
			return nil, 0, false, err
		}
	}
	if _, value, flags, ok = p.LeafAt(i); !ok {
		_, err = p.Leaf(i)
	}
	return value, flags, ok, err
}

func (t *Tree) lookupBelow(id page.ID, key []byte, verify bool) ([]byte, uint32, bool, error) {
	p, err := t.src.Page(id)
	if err != nil {
		return nil, 0, false, err
	}
	return t.lookupFrom(p, key, verify)
}

// lookupFrom finds key below page p. Below a page there are only pages.
func (t *Tree) lookupFrom(p page.Page, key []byte, verify bool) (value []byte, flags uint32, ok bool, err error) {
	for depth := 0; ; depth++ {
		i, exact, err := p.Search(key)
		if err != nil {
			return nil, 0, false, err
		}
		if p.IsLeaf() {
			if !exact {
				return nil, 0, false, nil
			}
			return t.valueIn(p, i, verify)
		}
		switch {
		case depth == maxDepth:
			return nil, 0, false, page.Corruptf(p.ID(), tooDeep)
		case p.Count() == 0:
			return nil, 0, false, page.Corruptf(p.ID(), emptyBranch)
		case !exact && i > 0:
			i--
		}
		if p, err = t.src.Page(p.Child(i)); err != nil {
			return nil, 0, false, err
		}
	}
}

// Put sets key to value and its flags. The tree copies a key that is new to it;
// value is kept as it is and must not change until the transaction ends.
func (t *Tree) Put(key, value []byte, flags uint32) error {
	_, err := t.put(key, value, flags, 0)
	return err
}

// PutValue is Put without flags. If key has flags already, that is, if it is a
// bucket, nothing changes and ok is false.
func (t *Tree) PutValue(key, value []byte) (ok bool, err error) {
	return t.put(key, value, 0, ^uint32(0))
}

// put sets key unless it exists with one of the flags in refuse.
func (t *Tree) put(key, value []byte, flags, refuse uint32) (bool, error) {
	i, exact, known := t.recall(key)
	n := t.work.finger.leaf.n
	if !known || n == nil {
		var err error
		n, err = t.editLeaf(key)
		if err == nil && !(known && t.work.finger.searched) { // else it is the leaf of that search
			i, exact, err = n.find(key)
		}
		if err != nil {
			return false, err
		}
	}
	if exact {
		e, err := n.element(i)
		if err != nil || e.Flags&refuse != 0 {
			return false, err
		}
		t.edit.arena.held += 2 * int64(len(value))
		if n.replace(i, e, value, flags) {
			t.edits++
			t.stay(n)
			return true, nil
		}
	}
	var born page.ID
	if !exact {
		born = t.bornNow(key)
		key = t.edit.arena.copyKey(key)
		t.edit.arena.held += 2 * int64(len(value))
		if n.addThin(i, item{key: key, value: value, flags: flags, child: born}, fullPage(t.edit.w.PageSize())) {
			t.edits++
			t.stay(n)
			return true, nil
		}
	}
	if err := n.thicken(); err != nil {
		return false, err
	}
	if int64(n.size)+int64(len(key)+page.LeafElementSize)+int64(len(value)) > math.MaxInt {
		return false, ErrTooLarge
	}
	t.edits++
	t.stay(n)
	if exact {
		it := &n.items[i]
		n.size += len(value) - len(it.value)
		it.replace(value)
		it.flags = flags
		return true, nil
	}
	n.insert(i, item{key: key, value: value, flags: flags, child: born})
	if n.tooLong() {
		return true, t.splitInMemory(key)
	}
	return true, nil
}

// editPath turns the path to key into nodes, down to the given depth or, if that is
// less deep, to the leaf, and returns the last one. They are to be written even if nothing
// in them changes.
func (t *Tree) editPath(key []byte, depth int) (*node, error) {
	n, err := t.editRoot()
	if err != nil {
		return nil, err
	}
	for d := 0; ; d++ {
		n.whole = true
		if n.leaf || d == depth && d < maxDepth {
			return n, nil
		}
		if d == maxDepth {
			return nil, page.Corruptf(n.base, tooDeep)
		}
		i, err := n.descendIndex(key)
		if err != nil {
			return nil, err
		}
		if n, err = t.editChild(n, i); err != nil {
			return nil, err
		}
	}
}

func (t *Tree) editRoot() (*node, error) {
	if t.node != nil {
		return t.node, nil
	}
	pl, err := t.rootPlace()
	if err != nil {
		return nil, err
	}
	n := t.edit.arena.newNode(true)
	if pl.p.Valid() {
		if err := t.edit.open(n, pl.p); err != nil {
			return nil, err
		}
	}
	t.node = n
	t.edits++
	return n, nil
}

// editChild is child i of branch n as a node.
func (t *Tree) editChild(n *node, i int) (*node, error) {
	c, id := n.child(i)
	if c != nil {
		return c, nil
	}
	p, err := t.src.Page(id)
	if err != nil {
		return nil, err
	}
	c = t.edit.arena.newNode(p.IsLeaf())
	if err := t.edit.open(c, p); err != nil {
		return nil, err
	}
	n.setChild(i, c)
	t.edits++
	return c, nil
}
