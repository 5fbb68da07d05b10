package tree

import (
	"bytes"

	"holdfast/internal/page"
)

// Rewriting pages without changing what they say, to lay them elsewhere or to fill
// them better. It does not count as an edit of the caller's: what is read stays the
// same.

// Rewrite has the pages on the way to key written anew, down to the one at the given
// depth, 0 for the root, or to the leaf if that is less deep. A page becomes a copy as
// long as it was. Nothing happens to an inline tree.
func (t *Tree) Rewrite(key []byte, depth int) error {
	_, err := t.editDown(key, depth)
	return err
}

// editDown makes the pages on the way to key nodes, down to depth, and returns the
// last one; nil of an inline tree.
func (t *Tree) editDown(key []byte, depth int) (*node, error) {
	if t.edit == nil {
		return nil, errReadOnly
	}
	if t.root == 0 && t.node == nil {
		return nil, nil
	}
	t.lift()
	return t.editPath(key, depth)
}

// Pack joins n pages that are neighbours at the given depth, at least 1, beginning
// with the one in which key belongs, and fills as few as it takes up to the share
// fill. If there are no n it joins those that there are.
func (t *Tree) Pack(key []byte, depth, n int, fill float64) error {
	in, err := t.editDown(key, depth-1)
	if err != nil || in == nil || in.leaf {
		return err
	}
	if err := in.thicken(); err != nil {
		return err
	}
	i, err := in.descendIndex(key)
	if err != nil {
		return err
	}
	left, err := t.editChild(in, i)
	if err == nil {
		err = left.thicken()
	}
	if err != nil {
		return err
	}
	for n--; n > 0 && i+1 < len(in.items); n-- {
		right, err := t.editChild(in, i+1)
		if err == nil {
			err = t.join(left, right)
		}
		if err != nil {
			return err
		}
		in.remove(i + 1)
	}
	left.fill, left.shrunk = fill, false
	in.shrunk = true // a branch of few children is joined with a neighbour
	return nil
}

// join moves all of right after left, and gives up its pages.
func (t *Tree) join(left, right *node) error {
	for _, side := range []*node{left, right} {
		if err := side.thicken(); err != nil {
			return err
		}
	}
	if left.leaf != right.leaf {
		return page.Corruptf(right.base, "a leaf and a branch at the same level")
	}
	if a, b := len(left.items), len(right.items); a > 0 && b > 0 &&
		bytes.Compare(left.items[a-1].key, right.items[0].key) >= 0 {
		return page.Corruptf(right.base, "keys are not in ascending order from page %d on", left.base)
	}
	right.moveTail(0, left)
	left.grown = true
	return t.freeBase(right)
}

// PackedPages is how many pages Pack makes of a leaf, or a branch, whose elements have
// keys and values of so many bytes.
func PackedPages(sizes []int, pageSize int, fill float64) int {
	s := splitter{pageSize: pageSize, fill: fill}
	pages, from := 0, 0
	for from < len(sizes) {
		c := s.packPart(from, len(sizes), func(i int) int { return sizes[i] + page.LeafElementSize })
		pages += (c.size + pageSize - 1) / pageSize
		from = c.end
	}
	return max(pages, 1)
}
