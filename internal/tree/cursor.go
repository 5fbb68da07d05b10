package tree

import (
	"bytes"

	"holdfast/internal/page"
)

// Cursor walks a tree in key order. Its position is an element, or after the
// last one after a Seek that found nothing. Next at the last element and Prev
// at the first return nothing and leave the position as it is.
//
// If the tree was edited since the last move, the cursor finds its place again
// by key: Next then gives the first element after the key it stood on, Prev
// the last before it, whether or not that key is still there. Both pass over
// elements that were put since the walk began: so it ends whatever its caller
// puts meanwhile. First, Last and Seek begin a walk, and so do Next after Prev and
// Prev after Next. (What Spill has written is as if it had been there.)
//
// A Cursor is for one goroutine; several cursors may read one tree at once.
type Cursor struct {
	// KeysOnly says that values are not used, but for their flags and, of buckets,
	// to open those: the values of long pages are not verified then.
	KeysOnly bool

	// Copies says that steps within a leaf are to read nothing of the file, which a caller would have to be ready for: see
	// Near.
	Copies bool

	on    bool // it stands on an element
	gone  bool // which DeleteValue has removed; the path leads to the one after it
	back  bool // the last move of this walk was Prev
	forth bool // it was Next
	near  bool // there are heads
	edged bool // the tree had an edge when the walk began

	t     *Tree
	edits uint64 // of the tree, when the stack was built
	stack []frame
	room  [3]frame // the stack of a tree of up to half a million keys of usual size
	key   []byte   // of the element it stands on

	forward, backward run    // see Step; one of both at most
	heads             []byte // a copy of the headers of the elements of its leaf

	// Of the tree when the walk began: edits, and the last key if there was an edge.
	since uint64
	last  []byte
}

// Init makes c a cursor over t, not positioned.
func (c *Cursor) Init(t *Tree) {
	c.t = t
	c.stack = c.room[:0]
	c.forward, c.backward = run{}, run{}
}

// First moves to the first element. ok is false if there is none.
func (c *Cursor) First() (e page.Element, ok bool, err error) {
	if err := c.begin(); err != nil {
		return c.fail(err)
	}
	return c.edge(false)
}

// Last moves to the last element. ok is false if there is none.
func (c *Cursor) Last() (e page.Element, ok bool, err error) {
	if err := c.begin(); err != nil {
		return c.fail(err)
	}
	return c.edge(true)
}

// begin begins a walk.
func (c *Cursor) begin() error {
	c.back, c.forth = false, false
	c.forward, c.backward = run{}, run{}
	c.since = c.t.edits
	g := c.t.edge
	if c.edged = g != nil; !c.edged {
		return nil
	}
	if g.edits == c.t.edits {
		c.last = append(c.last[:0], g.key...)
		return nil
	}
	key, _, err := c.t.lastKey()
	c.last = append(c.last[:0], key...)
	return err
}

// lastKey is the last key of the tree; ok is false if there is none.
func (t *Tree) lastKey() (key []byte, ok bool, err error) {
	c := Cursor{KeysOnly: true}
	c.Init(t)
	c.since = t.edits
	e, ok, err := c.edge(true)
	return e.Key, ok, err
}

func (c *Cursor) edge(last bool) (page.Element, bool, error) {
	if err := c.start(); err != nil {
		return page.Element{}, false, err
	}
	if err := c.dive(last); err != nil {
		return page.Element{}, false, err
	}
	top := c.top()
	if last {
		if i := c.before(top.count - 1); i >= 0 {
			top.index = i
			return c.take()
		}
		return c.retreat(nil)
	}
	if i := c.after(0); i < top.count {
		top.index = i
		return c.take()
	}
	return c.advance(nil)
}

// Seek moves to the first element whose key is not less than key. ok is false
// if there is none; the cursor then stands after the last element.
func (c *Cursor) Seek(key []byte) (e page.Element, ok bool, err error) {
	if err := c.begin(); err != nil {
		return c.fail(err)
	}
	if err := c.descend(key); err != nil {
		return page.Element{}, false, err
	}
	if top := c.top(); top.index < top.count {
		return c.take()
	}
	return c.advance(nil)
}

// StepEdited moves to the next element if that lies on the page on which the cursor
// stands, nothing was edited, and the last move was not Prev. Otherwise it does
// nothing, ok is false, and Next is to be called. It is Step for trees that can be edited.
func (c *Cursor) StepEdited() (key, value []byte, flags uint32, ok bool) {
	if len(c.stack) == 0 || c.t.edit == nil || c.edits != c.t.edits || c.back {
		return nil, nil, 0, false
	}
	top := &c.stack[len(c.stack)-1]
	if top.n != nil || top.p.Unverified() {
		return nil, nil, 0, false
	}
	if key, value, flags, ok = top.p.LeafAt(top.index + 1); ok {
		top.index++
		c.key, c.on, c.forth = key, true, true
	}
	return key, value, flags, ok
}

// StepEditedBack is StepEdited to the previous element.
func (c *Cursor) StepEditedBack() (key, value []byte, flags uint32, ok bool) {
	if len(c.stack) == 0 || !c.on || c.t.edit == nil || c.edits != c.t.edits || c.forth {
		return nil, nil, 0, false
	}
	top := &c.stack[len(c.stack)-1]
	if top.n != nil || top.p.Unverified() {
		return nil, nil, 0, false
	}
	if key, value, flags, ok = top.p.LeafAt(top.index - 1); ok {
		top.index--
		c.key, c.on, c.back = key, true, true
	}
	return key, value, flags, ok
}

// Next moves to the next element. ok is false at the end.
func (c *Cursor) Next() (e page.Element, ok bool, err error) {
	if len(c.stack) == 0 {
		return page.Element{}, false, nil
	}
	if err := c.settle(); err != nil {
		return c.fail(err)
	}
	if c.back {
		if err := c.begin(); err != nil {
			return c.fail(err)
		}
	}
	c.forth = true
	if c.edits == c.t.edits {
		top := c.top()
		i := top.index + 1
		if c.gone {
			i--
		}
		if i = c.after(i); i < top.count {
			top.index = i
			return c.take()
		}
		return c.advance(c.key)
	}
	if !c.on {
		return c.pastLast()
	}
	return c.orStay(c.key, false)
}

// nextAfter moves to the first element after key, in a tree that was edited.
func (c *Cursor) nextAfter(key []byte) (page.Element, bool, error) {
	if err := c.descend(key); err != nil {
		return page.Element{}, false, err
	}
	top := c.top()
	i := top.index
	if i < top.count {
		k, err := top.key(i)
		if err != nil {
			return c.fail(err)
		}
		if bytes.Equal(k, key) {
			i++
		}
	}
	if i = c.after(i); i < top.count {
		top.index = i
		return c.take()
	}
	return c.advance(key)
}

// limit is the key after which Next does not go because what is there was appended since the walk
// began: once it is in pages nothing else tells it from older elements. ok is false if there is none.
func (c *Cursor) limit() (key []byte, ok bool) {
	g := c.t.edge
	switch {
	case g == nil || g.edits <= c.since:
		return nil, false
	case c.edged:
		return c.last, true
	}
	return g.before, true
}

// Prev moves to the previous element. ok is false at the beginning.
func (c *Cursor) Prev() (e page.Element, ok bool, err error) {
	if len(c.stack) == 0 {
		return page.Element{}, false, nil
	}
	if err := c.settle(); err != nil {
		return c.fail(err)
	}
	if c.forth {
		if err := c.begin(); err != nil {
			return c.fail(err)
		}
	}
	c.back = true
	if c.edits != c.t.edits {
		if !c.on {
			return c.edge(true)
		}
		return c.orStay(c.key, true)
	}
	if top := c.top(); top.index > 0 {
		if i := c.before(top.index - 1); i >= 0 {
			top.index = i
			return c.take()
		}
	}
	return c.retreat(c.key)
}

// prevBefore moves to the last element before key, in a tree that was edited.
func (c *Cursor) prevBefore(key []byte) (page.Element, bool, error) {
	if err := c.descend(key); err != nil {
		return page.Element{}, false, err
	}
	top := c.top()
	if i := c.before(top.index - 1); i >= 0 {
		top.index = i
		return c.take()
	}
	return c.retreat(key)
}

// orStay makes a move in an edited tree from key. If there is no element that
// way the cursor still stands on key, which may be gone: the path says nothing
// then, and the next move looks for key again.
func (c *Cursor) orStay(key []byte, back bool) (e page.Element, ok bool, err error) {
	if back {
		e, ok, err = c.prevBefore(key)
	} else {
		e, ok, err = c.nextAfter(key)
	}
	if err != nil {
		return e, ok, err
	}
	if ok && (bytes.Compare(e.Key, key) > 0) == back { // on a damaged page the walk would not end
		return c.fail(c.top().corrupt("keys are not in ascending order"))
	}
	limit, limited := c.limit()
	if limited = limited && !back; limited || !ok {
		c.edits = c.t.edits - 1 // the next move comes here too
	}
	if !ok || limited && bytes.Compare(e.Key, limit) > 0 {
		c.key, c.on = key, true
		return page.Element{}, false, nil
	}
	return e, true, nil
}

// DeleteValue removes the element that the cursor stands on. If it has flags,
// that is, if it is a bucket, nothing changes and ok is false. Without an
// element nothing happens.
func (c *Cursor) DeleteValue() (ok bool, err error) {
	if err := c.settle(); err != nil {
		_, _, err = c.fail(err)
		return false, err
	}
	switch {
	case !c.on:
		return true, nil
	case c.edits != c.t.edits:
		return c.t.DeleteValue(c.key)
	case c.gone:
		return true, nil
	}
	top := c.top()
	if e, err := top.element(top.index); err != nil || e.Flags != 0 {
		return false, err
	}
	return true, c.deleteHere()
}

// deleteHere removes the element that the path leads to.
func (c *Cursor) deleteHere() error {
	n, err := c.editHere()
	if err == nil {
		err = n.thicken()
	}
	if err != nil {
		return err
	}
	top := c.top()
	if f := &c.t.work.finger; f.leaf.n != n || f.edits != c.t.edits {
		c.t.lift()
	}
	moved, err := c.t.remove(n, top.index)
	if err == nil && !moved { // else the next move goes by the key
		top.count--
		c.gone, c.edits = true, c.t.edits
	}
	return err
}

// editHere turns the path into nodes and returns the leaf.
func (c *Cursor) editHere() (*node, error) {
	if n := c.top().n; n != nil {
		return n, nil
	}
	if c.t.edit == nil {
		return nil, errReadOnly
	}
	n, err := c.t.editRoot()
	for i := range c.stack {
		f := &c.stack[i]
		if err == nil {
			err = n.isLike(f.leaf(), f.count)
		}
		if err != nil {
			return nil, err
		}
		f.place = place{n: n}
		if i+1 < len(c.stack) {
			n, err = c.t.editChild(n, c.stack[i].index)
		}
	}
	c.edits = c.t.edits
	return n, nil
}
