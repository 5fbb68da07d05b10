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
	end  int // where at is when there is none; 0 and 0: there is no run
}

// forwardRun and backwardRun are the elements of a leaf beyond one of them.
func forwardRun(leaf []byte, index, count int) run {
	return run{leaf, page.HeaderSize + (index+1)*page.LeafElementSize, page.HeaderSize + count*page.LeafElementSize}
}

func backwardRun(leaf []byte, index int) run {
	return run{leaf, page.HeaderSize + (index-1)*page.LeafElementSize, page.HeaderSize - page.LeafElementSize}
}

// value is what a step gives as the value of an element: nil of a bucket.
func (r *run) value(mid, end uint64, flags uint32) []byte {
	if flags&page.BucketFlag != 0 {
		return nil
	}
	return r.leaf[mid:end:end]
}

// Step is the next element, if it is in the leaf on which the cursor stands or in the next one, nothing can be edited, and
// the last move was Next. The value of a bucket is nil. Otherwise key is nil, and Next is to be called.
func (c *Cursor) Step() (key, value []byte) {
	r := &c.forward
	if r.at == r.end {
		return c.across(false)
	}
	start, mid, end, flags, ok := page.LeafBounds(r.leaf, r.at)
	if !ok {
		return nil, nil
	}
	r.at += page.LeafElementSize
	return r.leaf[start:mid:mid], r.value(mid, end, flags)
}

// Near is Step within the leaf, for cursors with Copies. It reads nothing of the file, so nothing can fault: a caller that
// would have to catch that at each step takes half the time.
func (c *Cursor) Near() (key, value []byte) {
	r := &c.forward
	if r.at == r.end || !c.near {
		return nil, nil
	}
	start, mid, end, flags, ok := page.LeafBoundsOf(c.heads[r.at-page.HeaderSize:], r.at, len(r.leaf))
	if !ok {
		return nil, nil
	}
	r.at += page.LeafElementSize
	return r.leaf[start:mid:mid], r.value(mid, end, flags)
}

// NearBack is Near to the previous element.
func (c *Cursor) NearBack() (key, value []byte) {
	r := &c.backward
	if r.at == r.end || !c.near {
		return nil, nil
	}
	start, mid, end, flags, ok := page.LeafBoundsOf(c.heads[r.at-page.HeaderSize:], r.at, len(r.leaf))
	if !ok {
		return nil, nil
	}
	r.at -= page.LeafElementSize
	return r.leaf[start:mid:mid], r.value(mid, end, flags)
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
func (c *Cursor) StepBack() (key, value []byte) {
	r := &c.backward
	if r.at == r.end {
		return c.across(true)
	}
	start, mid, end, flags, ok := page.LeafBounds(r.leaf, r.at)
	if !ok {
		return nil, nil
	}
	r.at -= page.LeafElementSize
	return r.leaf[start:mid:mid], r.value(mid, end, flags)
}

// startRun prepares Step and StepBack for the elements beyond the one under the top frame.
func (c *Cursor) startRun() {
	top := c.top()
	if c.t.edit != nil || top.n != nil || top.p.Unverified() {
		return
	}
	switch {
	case c.forth:
		c.forward = forwardRun(top.p.Bytes(), top.index, top.count)
	case c.back:
		c.backward = backwardRun(top.p.Bytes(), top.index)
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
		index = (c.forward.at-page.HeaderSize)/page.LeafElementSize - 1
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
// from one leaf to the other. Otherwise it changes nothing, key is nil, and Next or Prev handles the move and its errors.
func (c *Cursor) across(back bool) (key, value []byte) {
	depth := len(c.stack)
	from := &c.forward
	if back {
		from = &c.backward
	}
	if from.leaf == nil || from.at != from.end || depth < 2 {
		return nil, nil
	}
	branch, top := &c.stack[depth-2], &c.stack[depth-1]
	i := branch.index + 1
	if back {
		i = branch.index - 1
	}
	if uint(i) >= uint(branch.count) || branch.n != nil {
		return nil, nil
	}
	p, err := c.t.src.Page(branch.p.Child(i))
	if err != nil || !p.IsLeaf() || p.Count() == 0 || p.Unverified() {
		return nil, nil
	}
	near := 0
	if back {
		near = p.Count() - 1
	}
	key, value, flags, ok := p.LeafAt(near)
	if !ok || !ascends(from.leaf, top.count, key, back) {
		return nil, nil
	}
	branch.index = i
	top.p, top.index, top.count = p, near, p.Count()
	if back {
		*from = backwardRun(p.Bytes(), near)
	} else {
		*from = forwardRun(p.Bytes(), near, top.count)
	}
	c.copyHeads(p)
	c.key = key
	if flags&page.BucketFlag != 0 {
		value = nil
	}
	return key, value
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
