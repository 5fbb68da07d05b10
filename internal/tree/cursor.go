package tree

import (
	"bytes"

	"holdfast/internal/page"
)

// maxEmptyLeaves bounds the empty leaf pages passed over in one step. No real
// file has any but an empty root.
const maxEmptyLeaves = 1000

// frame is one level of a cursor's path.
type frame struct {
	place
	index int
	count int
}

// Cursor walks a tree in key order. Its position is an element, or behind the
// last one after a Seek that found nothing. Next at the last element and Prev
// at the first return nothing and leave the position as it is.
//
// If the tree was edited since the last move, the cursor finds its place again
// by key: Next then gives the first element behind the key it stood on, Prev
// the last before it, whether or not that key is still there.
//
// A Cursor is for one goroutine; several cursors may read one tree at once.
type Cursor struct {
	// KeysOnly says that values are not used, but for their flags and, of buckets,
	// to open those: the values of long pages are not verified then.
	KeysOnly bool

	t     *Tree
	stack []frame
	room  [5]frame // the stack of a tree of usual height
	key   []byte   // of the element it stands on
	on    bool     // it stands on an element
	edits uint64   // of the tree, when the stack was built
}

// Init makes c a cursor over t, not positioned.
func (c *Cursor) Init(t *Tree) {
	c.t = t
	c.stack = c.room[:0]
}

// First moves to the first element. ok is false if there is none.
func (c *Cursor) First() (e page.Element, ok bool, err error) { return c.edge(false) }

// Last moves to the last element. ok is false if there is none.
func (c *Cursor) Last() (e page.Element, ok bool, err error) { return c.edge(true) }

func (c *Cursor) edge(last bool) (page.Element, bool, error) {
	if err := c.start(); err != nil {
		return page.Element{}, false, err
	}
	if err := c.dive(last); err != nil {
		return page.Element{}, false, err
	}
	if c.top().count > 0 {
		return c.take()
	}
	if last {
		return c.retreat(nil)
	}
	return c.advance(nil)
}

// Seek moves to the first element whose key is not less than key. ok is false
// if there is none; the cursor then stands behind the last element.
func (c *Cursor) Seek(key []byte) (e page.Element, ok bool, err error) {
	if err := c.descend(key); err != nil {
		return page.Element{}, false, err
	}
	if top := c.top(); top.index < top.count {
		return c.take()
	}
	return c.advance(nil)
}

// Step moves to the next element if that lies on the page on which the cursor
// stands and nothing was edited. Otherwise it does nothing, ok is false, and
// Next is to be called. It exists because scans spend their time here.
func (c *Cursor) Step() (key, value []byte, flags uint32, ok bool) {
	if len(c.stack) == 0 || c.edits != c.t.edits {
		return nil, nil, 0, false
	}
	top := &c.stack[len(c.stack)-1]
	if top.n != nil || top.p.Unverified() {
		return nil, nil, 0, false
	}
	if key, value, flags, ok = top.p.LeafAt(top.index + 1); ok {
		top.index++
		c.key, c.on = key, true
	}
	return key, value, flags, ok
}

// StepBack is Step to the previous element.
func (c *Cursor) StepBack() (key, value []byte, flags uint32, ok bool) {
	if len(c.stack) == 0 || !c.on || c.edits != c.t.edits {
		return nil, nil, 0, false
	}
	top := &c.stack[len(c.stack)-1]
	if top.n != nil || top.p.Unverified() {
		return nil, nil, 0, false
	}
	if key, value, flags, ok = top.p.LeafAt(top.index - 1); ok {
		top.index--
		c.key, c.on = key, true
	}
	return key, value, flags, ok
}

// Next moves to the next element. ok is false at the end.
func (c *Cursor) Next() (e page.Element, ok bool, err error) {
	if len(c.stack) == 0 {
		return page.Element{}, false, nil
	}
	if c.edits == c.t.edits {
		if top := c.top(); top.index+1 < top.count {
			top.index++
			return c.take()
		}
		return c.advance(c.key)
	}
	if !c.on {
		return c.behindLast()
	}
	return c.orStay(c.key, false)
}

// nextAfter moves to the first element behind key, in a tree that was edited.
func (c *Cursor) nextAfter(key []byte) (page.Element, bool, error) {
	if err := c.descend(key); err != nil {
		return page.Element{}, false, err
	}
	top := c.top()
	if top.index < top.count {
		k, err := top.key(top.index)
		if err != nil {
			return c.fail(err)
		}
		if !bytes.Equal(k, key) {
			return c.take()
		}
		if top.index+1 < top.count {
			top.index++
			return c.take()
		}
	}
	return c.advance(key)
}

// Prev moves to the previous element. ok is false at the beginning.
func (c *Cursor) Prev() (e page.Element, ok bool, err error) {
	if len(c.stack) == 0 {
		return page.Element{}, false, nil
	}
	if c.edits != c.t.edits {
		if !c.on {
			return c.Last()
		}
		return c.orStay(c.key, true)
	}
	if top := c.top(); top.index > 0 {
		top.index--
		return c.take()
	}
	return c.retreat(c.key)
}

// prevBefore moves to the last element before key, in a tree that was edited.
func (c *Cursor) prevBefore(key []byte) (page.Element, bool, error) {
	if err := c.descend(key); err != nil {
		return page.Element{}, false, err
	}
	if top := c.top(); top.index > 0 {
		top.index--
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
	switch {
	case err != nil:
	case !ok:
		c.key, c.on = key, true
		c.edits = c.t.edits - 1
	case (bytes.Compare(e.Key, key) > 0) == back: // on a damaged page the walk would not end
		return c.fail(c.top().corrupt("keys are not in ascending order"))
	}
	return e, ok, err
}

// DeleteValue removes the element that the cursor stands on. If it has flags,
// that is, if it is a bucket, nothing changes and ok is false. Without an
// element nothing happens.
func (c *Cursor) DeleteValue() (ok bool, err error) {
	if !c.on {
		return true, nil
	}
	return c.t.DeleteValue(c.key)
}

func (c *Cursor) top() *frame { return &c.stack[len(c.stack)-1] }

// take makes the element under the top frame the position.
func (c *Cursor) take() (page.Element, bool, error) {
	top := c.top()
	if !c.KeysOnly {
		if err := c.t.verify(&top.place, top.index); err != nil {
			return c.fail(err)
		}
	}
	e, err := top.element(top.index)
	if err != nil {
		return c.fail(err)
	}
	if top.n != nil {
		c.t.lend()
	}
	c.key, c.on = e.Key, true
	return e, true, nil
}

func (c *Cursor) fail(err error) (page.Element, bool, error) {
	c.stack, c.key, c.on = c.stack[:0], nil, false
	return page.Element{}, false, err
}

// behindLast places the cursor behind the last element, where an edit found it.
func (c *Cursor) behindLast() (page.Element, bool, error) {
	if _, ok, err := c.Last(); err != nil || !ok {
		return page.Element{}, false, err
	}
	c.top().index++
	c.on = false
	return page.Element{}, false, nil
}

// start begins a new path at the root.
func (c *Cursor) start() error {
	c.stack, c.key, c.on, c.edits = c.stack[:0], nil, false, c.t.edits
	pl, err := c.t.rootPlace()
	if err != nil {
		return err
	}
	c.stack = append(c.stack, frame{place: pl, count: pl.count()})
	return nil
}

// push descends into the element under the top frame, a branch.
func (c *Cursor) push() error {
	top := c.top()
	var err error
	switch {
	case len(c.stack) > maxDepth:
		err = top.corrupt(tooDeep)
	case top.count == 0:
		err = top.corrupt(emptyBranch)
	default:
		var pl place
		if pl, err = c.t.child(&top.place, top.index); err == nil {
			c.stack = append(c.stack, frame{place: pl, count: pl.count()})
			return nil
		}
	}
	_, _, err = c.fail(err)
	return err
}

// dive goes from the top frame down to a leaf, along the first or last elements.
func (c *Cursor) dive(last bool) error {
	for {
		top := c.top()
		if last {
			top.index = max(top.count-1, 0)
		}
		if top.leaf() {
			return nil
		}
		if err := c.push(); err != nil {
			return err
		}
	}
}

// descend builds the path to the first key not less than key, in the leaf where
// key belongs; the index may be behind that leaf's last element.
func (c *Cursor) descend(key []byte) error {
	if err := c.start(); err != nil {
		return err
	}
	for {
		top := c.top()
		var err error
		if top.leaf() {
			top.index, _, err = top.search(key)
			if err != nil {
				_, _, err = c.fail(err)
			}
			return err
		}
		if top.count > 0 {
			top.index, err = top.descendIndex(key)
		}
		if err != nil {
			_, _, err = c.fail(err)
			return err
		}
		if err := c.push(); err != nil {
			return err
		}
	}
}

// advance moves to the first element of the next leaf that has one. from is the
// last key of the leaf that it leaves, if it stood on it. In the absence of a
// next leaf the cursor stays where it is.
func (c *Cursor) advance(from []byte) (page.Element, bool, error) {
	return c.cross(from, false)
}

// retreat is advance, backward.
func (c *Cursor) retreat(from []byte) (page.Element, bool, error) {
	return c.cross(from, true)
}

func (c *Cursor) cross(from []byte, back bool) (page.Element, bool, error) {
	if err := c.checkLeaving(from, back); err != nil {
		return c.fail(err)
	}
	moved := false
	for empty := 0; ; {
		i := len(c.stack) - 2
		for ; i >= 0; i-- {
			f := &c.stack[i]
			if back && f.index > 0 || !back && f.index+1 < f.count {
				break
			}
		}
		if i < 0 {
			if moved { // over leaves that were emptied: the path is not where the cursor stands
				c.edits = c.t.edits - 1
			}
			return page.Element{}, false, nil
		}
		moved = true
		if back {
			c.stack[i].index--
		} else {
			c.stack[i].index++
		}
		c.stack = c.stack[:i+1]
		if err := c.push(); err != nil {
			return page.Element{}, false, err
		}
		if err := c.dive(back); err != nil {
			return page.Element{}, false, err
		}
		top := c.top()
		if top.count > 0 {
			return c.takeAcross(from, back)
		}
		if top.n == nil {
			if empty++; empty > maxEmptyLeaves {
				return c.fail(top.corrupt("too many empty leaves"))
			}
		}
	}
}

// checkLeaving and takeAcross see to it that a walk ends on any file: keys
// ascend from the first to the last of each leaf and from leaf to leaf, so no
// leaf comes twice.
func (c *Cursor) checkLeaving(from []byte, back bool) error {
	top := c.top()
	if from == nil || top.count < 2 {
		return nil
	}
	other := 0
	if back {
		other = top.count - 1
	}
	k, err := top.key(other)
	if err == nil && (bytes.Compare(k, from) > 0) != back {
		err = top.corrupt("keys are not in ascending order")
	}
	return err
}

func (c *Cursor) takeAcross(from []byte, back bool) (page.Element, bool, error) {
	e, ok, err := c.take()
	if err != nil || from == nil {
		return e, ok, err
	}
	if order := bytes.Compare(e.Key, from); back && order >= 0 || !back && order <= 0 {
		return c.fail(c.top().corrupt("keys are not in ascending order from leaf to leaf"))
	}
	return e, ok, nil
}
