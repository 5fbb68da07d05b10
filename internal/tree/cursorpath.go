package tree

import (
	"bytes"

	"holdfast/internal/page"
)

// The path of a cursor, from the root to a leaf; see cursor.go for what moves it.

// maxEmptyLeaves bounds the empty leaf pages passed over in one step. No real
// file has any but an empty root.
const maxEmptyLeaves = 1000

// frame is one level of a cursor's path.
type frame struct {
	place
	index int
	count int
}

func (c *Cursor) top() *frame { return &c.stack[len(c.stack)-1] }

// after is the first element from i on in the leaf under the top frame that is as old as the
// walk; the number of elements if there is none.
func (c *Cursor) after(i int) int {
	top := c.top()
	for top.n != nil && i < top.count && top.n.born(i) > c.since {
		i++
	}
	return i
}

// before is after, backward; -1 if there is none.
func (c *Cursor) before(i int) int {
	top := c.top()
	for top.n != nil && i >= 0 && top.n.born(i) > c.since {
		i--
	}
	return i
}

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
	c.key, c.on, c.gone = e.Key, true, false
	c.startRun()
	return e, true, nil
}

func (c *Cursor) fail(err error) (page.Element, bool, error) {
	c.stack, c.key, c.on, c.gone = c.stack[:0], nil, false, false
	c.forward, c.backward = run{}, run{}
	return page.Element{}, false, err
}

// pastLast places the cursor after the last element, where an edit found it.
func (c *Cursor) pastLast() (page.Element, bool, error) {
	err := c.start()
	if err == nil {
		err = c.dive(true)
	}
	if err != nil {
		return page.Element{}, false, err
	}
	c.top().index = c.top().count
	return page.Element{}, false, nil
}

// start begins a new path at the root.
func (c *Cursor) start() error {
	c.stack, c.key, c.on, c.gone, c.edits = c.stack[:0], nil, false, false, c.t.edits
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
// key belongs; the index may be after that leaf's last element.
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
			if moved { // over leaves without old elements: the path is not where the cursor stands
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
		i = c.after(0)
		if back {
			i = c.before(top.count - 1)
		}
		if 0 <= i && i < top.count {
			top.index = i
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
	other := c.after(0)
	if back {
		other = c.before(top.count - 1)
	}
	if other < 0 || other >= top.count {
		return nil
	}
	k, err := top.key(other)
	if order := bytes.Compare(k, from); err == nil && (back && order < 0 || !back && order > 0) {
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
