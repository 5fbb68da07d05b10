package tree

import (
	"bytes"

	"holdfast/internal/page"
)

// run is the rest of the leaf on which a Cursor stands, in the direction of its walk. It has all that a step of a scan
// needs: one that looked at the path, the tree and the place of its Cursor would take twice the time. There is one
// only in a tree that is not edited, whose leaves stay as they are. Its steps move the Cursor, which settles what it
// knows of its place before it does anything else.
type run struct {
	leaf []byte
	at   int // where the header of the next element is
	left int // how many elements there are; 0: there is no run
}

// Step is the next element, if it is in the leaf on which the cursor stands or in the next one, nothing can be edited, and
// the last move was Next; bucket tells whether its value is a bucket. Otherwise ok is false, and Next is to be called.
func (c *Cursor) Step() (key, value []byte, bucket, ok bool) {
	r := &c.forward
	if r.left == 0 {
		return c.across(false)
	}
	start, mid, end, flags, ok := page.LeafBounds(r.leaf, r.at)
	if !ok {
		return nil, nil, false, false
	}
	r.left--
	r.at += page.LeafElementSize
	return r.leaf[start:mid:mid], r.leaf[mid:end:end], flags&page.BucketFlag != 0, true
}

// Near is Step within the leaf, for cursors with Copies. It reads nothing of the file, so nothing can fault: a caller that
// would have to catch that at each step takes half the time.
func (c *Cursor) Near() (key, value []byte, bucket, ok bool) {
	r := &c.forward
	if r.left == 0 || !c.near {
		return nil, nil, false, false
	}
	start, mid, end, flags, ok := page.LeafBoundsOf(c.heads[r.at-page.HeaderSize:], r.at, len(r.leaf))
	if !ok {
		return nil, nil, false, false
	}
	r.left--
	r.at += page.LeafElementSize
	return r.leaf[start:mid:mid], r.leaf[mid:end:end], flags&page.BucketFlag != 0, true
}

// NearBack is Near to the previous element.
func (c *Cursor) NearBack() (key, value []byte, bucket, ok bool) {
	r := &c.backward
	if r.left == 0 || !c.near {
		return nil, nil, false, false
	}
	start, mid, end, flags, ok := page.LeafBoundsOf(c.heads[r.at-page.HeaderSize:], r.at, len(r.leaf))
	if !ok {
		return nil, nil, false, false
	}
	r.left--
	r.at -= page.LeafElementSize
	return r.leaf[start:mid:mid], r.leaf[mid:end:end], flags&page.BucketFlag != 0, true
}

// maxCopied is how many headers are copied at most. Longer leaves are rare.
const maxCopied = 256

// copyHeads copies the headers of the elements of a leaf in which a run begins, for Near.
func (c *Cursor) copyHeads(p page.Page) {
	if c.near = c.Copies && p.Count() <= maxCopied; c.near {
		c.heads = append(c.heads[:0], p.Bytes()[page.HeaderSize:][:p.Count()*page.LeafElementSize]...)
	}
}

// StepBack is Step to the previous element.
func (c *Cursor) StepBack() (key, value []byte, bucket, ok bool) {
	r := &c.backward
	if r.left == 0 {
		return c.across(true)
	}
	start, mid, end, flags, ok := page.LeafBounds(r.leaf, r.at)
	if !ok {
		return nil, nil, false, false
	}
	r.left--
	r.at -= page.LeafElementSize
	return r.leaf[start:mid:mid], r.leaf[mid:end:end], flags&page.BucketFlag != 0, true
}

// startRun prepares Step and StepBack for the elements beyond the one under the top frame.
func (c *Cursor) startRun() {
	top := c.top()
	if c.t.edit != nil || top.n != nil || top.p.Unverified() {
		return
	}
	leaf, header := top.p.Bytes(), page.HeaderSize+top.index*page.LeafElementSize
	switch {
	case c.forth:
		c.forward = run{leaf, header + page.LeafElementSize, top.count - 1 - top.index}
	case c.back:
		c.backward = run{leaf, header - page.LeafElementSize, top.index}
	default:
		return
	}
	c.copyHeads(top.p)
}

// settle ends a run, and makes the path and the key those of the element on which the cursor stands.
func (c *Cursor) settle() error {
	if c.forward.leaf == nil && c.backward.leaf == nil {
		return nil
	}
	top := c.top()
	index := (c.backward.at-page.HeaderSize)/page.LeafElementSize + 1
	if c.forward.leaf != nil {
		index = top.count - 1 - c.forward.left
	}
	c.forward, c.backward = run{}, run{}
	if index == top.index {
		return nil
	}
	top.index = index
	var err error
	c.key, err = top.key(index)
	return err
}

// across moves from the end of a run to the first element of the next leaf, or from its beginning to the last element of
// the one before. It handles the common case only: the leaf is under the same branch, is not empty, and the keys ascend
// from one leaf to the other. Otherwise it changes nothing, ok is false, and Next or Prev handles the move and its errors.
func (c *Cursor) across(back bool) (key, value []byte, bucket, ok bool) {
	depth := len(c.stack)
	from := &c.forward
	if back {
		from = &c.backward
	}
	if from.leaf == nil || from.left > 0 || depth < 2 {
		return nil, nil, false, false
	}
	branch, top := &c.stack[depth-2], &c.stack[depth-1]
	i := branch.index + 1
	if back {
		i = branch.index - 1
	}
	if uint(i) >= uint(branch.count) || branch.n != nil {
		return nil, nil, false, false
	}
	p, err := c.t.src.Page(branch.p.Child(i))
	if err != nil || !p.IsLeaf() || p.Count() == 0 || p.Unverified() {
		return nil, nil, false, false
	}
	near, far := 0, p.Count()-1
	if back {
		near, far = far, near
	}
	key, value, flags, ok := p.LeafAt(near)
	if !ok || !ascends(from.leaf, top.count, key, back) {
		return nil, nil, false, false
	}
	branch.index = i
	top.p, top.index, top.count = p, near, p.Count()
	header := page.HeaderSize + near*page.LeafElementSize
	if back {
		*from = run{p.Bytes(), header - page.LeafElementSize, near}
	} else {
		*from = run{p.Bytes(), header + page.LeafElementSize, far}
	}
	c.copyHeads(p)
	c.key = key
	return key, value, flags&page.BucketFlag != 0, true
}

// ascends tells whether the first and last of a leaf's keys are in ascending order, and key after, or with back before, both:
// then no leaf comes twice, and a walk ends on any file.
func ascends(leaf []byte, count int, key []byte, back bool) bool {
	start, mid, _, _, ok := page.LeafBounds(leaf, page.HeaderSize)
	lastStart, lastMid, _, _, lastOK := page.LeafBounds(leaf, page.HeaderSize+(count-1)*page.LeafElementSize)
	if !ok || !lastOK {
		return false
	}
	first, last := leaf[start:mid], leaf[lastStart:lastMid]
	if back {
		return bytes.Compare(key, first) < 0 && bytes.Compare(first, last) <= 0
	}
	return bytes.Compare(last, key) < 0 && bytes.Compare(first, last) <= 0
}
