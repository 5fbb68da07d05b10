package blob

import (
	"bytes"
	"fmt"
	"slices"
)

// Range is a part of a blob, in bytes.
type Range struct {
	Offset int64
	Length int64
	// InA tells that the blob that it was compared with has bytes there too, other
	// ones. In a store with content-defined chunking it is always false.
	InA bool
}

// Diff calls fn with the ranges of b that differ from a, in order, until it returns an
// error, which is returned. Leaves are compared by their hashes and not read, and equal
// subtrees not entered: a change of some leaves in a large blob is found by
// reading some nodes. So a range that differs consists of whole leaves.
//
// In a store with fixed leaves a range is compared with the bytes of a at the same offset;
// where a ends, a range with InA ends. That b is shorter than a their sizes tell. With
// content-defined chunking the ranges are the leaves of b that are nowhere in a: what
// the owner of a needs to make b. That takes some MiB of memory, and 50 bytes for each
// 100 leaves of a and of b.
//
// Either may be inline.
func (s *Store) Diff(a, b Ref, fn func(Range) error) error {
	j := rangeJoiner{fn: fn}
	roots := [2]chunkKey{}
	for i, ref := range []Ref{a, b} {
		roots[i] = chunkKey{ref.Address(), ref.level} // inline too
		if ref.inlined {
			if ref.algorithm != s.options.Algorithm {
				return fmt.Errorf("diff: blob %v: %w", ref, ErrAlgorithm)
			}
			continue
		}
		k, _, ok, err := s.root(ref)
		if err == nil && !ok {
			err = fmt.Errorf("blob %v: %w", ref, ErrNotFound)
		}
		if err == nil && k.level > 0 {
			err = s.checkTree(&k, ref.size)
		}
		if err != nil {
			return fmt.Errorf("diff: %w", err)
		}
	}
	if roots[0] == roots[1] {
		return nil
	}
	var err error
	if s.options.Chunking == FastCDC {
		err = s.diffContent(subtree{roots[0], a.size}, subtree{roots[1], b.size}, &j)
	} else {
		err = s.diffFixed(&subtree{roots[0], a.size}, subtree{roots[1], b.size}, 0, a.size, &j)
	}
	if err != nil {
		return fmt.Errorf("diff of blobs %v and %v: %w", a, b, err)
	}
	return j.end()
}

// checkTree tells whether a node has the size that the reference to it says.
func (s *Store) checkTree(k *chunkKey, size int64) error {
	n, err := s.loadNode(k)
	if err == nil && n.size != size {
		err = fmt.Errorf("blob %v has %d bytes, and the reference says %d: %w", k.addr, n.size, size, ErrInvalidRef)
	}
	return err
}

// subtree is a chunk and how much content is below it.
type subtree struct {
	key  chunkKey
	size int64
}

// diffFixed compares b with a, which begins at the same offset; nil: a has ended
// before. Both are trees of fixed leaves. All of a has aSize bytes.
func (s *Store) diffFixed(a *subtree, b subtree, offset, aSize int64, j *rangeJoiner) error {
	switch {
	case a == nil:
		return j.add(Range{Offset: offset, Length: b.size})
	case a.key == b.key:
		return nil
	case a.key.level > b.key.level:
		first, err := s.firstChild(a)
		if err != nil {
			return err
		}
		return s.diffFixed(&first, b, offset, aSize, j)
	case b.key.level == 0:
		in := min(b.size, max(aSize-offset, 0))
		if err := j.add(Range{offset, in, true}); err != nil {
			return err
		}
		return j.add(Range{Offset: offset + in, Length: b.size - in})
	}
	nb, err := s.loadNode(&b.key)
	if err != nil {
		return err
	}
	// The children of b lie next to those of a node of the same level, or the first of them
	// next to all of a, if that is lower.
	neighbour := func(i int) (*subtree, error) {
		if i > 0 {
			return nil, nil
		}
		return a, nil
	}
	if a.key.level == b.key.level {
		na, err := s.loadNode(&a.key)
		if err != nil {
			return err
		}
		neighbour = func(i int) (*subtree, error) {
			if i >= na.count() {
				return nil, nil
			}
			key, size := na.child(i)
			return &subtree{key, size}, nil
		}
	}
	for i := range nb.count() {
		key, size := nb.child(i)
		other, err := neighbour(i)
		if err != nil {
			return err
		}
		if err := s.diffFixed(other, subtree{key, size}, offset, aSize, j); err != nil {
			return err
		}
		offset += size
	}
	return nil
}

func (s *Store) firstChild(t *subtree) (subtree, error) {
	n, err := s.loadNode(&t.key)
	if err != nil {
		return subtree{}, err
	}
	key, size := n.child(0)
	return subtree{key, size}, nil
}

// diffContent finds the leaves of b that are nowhere in a.
func (s *Store) diffContent(a, b subtree, j *rangeJoiner) error {
	return newContentDiff(s, a.key, diffLeaves, j).run(b)
}

// diffLeaves is how many leaves of b are looked for at once in a.
const diffLeaves = 1 << 16

// contentDiff compares blobs that are cut by content: leaves of b are gathered, and looked for in all of a,
// some at a time. So memory does not depend on the number of leaves.
type contentDiff struct {
	s       *Store
	a       chunkKey
	nodes   map[chunkKey]struct{} // of a
	seen    map[chunkKey]gathered // nodes of b
	limit   int
	leaves  []diffLeaf // of b, in order
	order   []int32    // of their addresses
	taken   int        // leaves of b so far
	decided int        // of those
	again   int        // nodes that were entered again since some were decided
	j       *rangeJoiner
}

type diffLeaf struct {
	addr         Address
	offset, size int64
	node         chunkKey // above it
	in           bool
	subtree      bool // it is not a leaf, but a subtree of which nothing is in a
}

// presence says what of a subtree is in a.
type presence uint8

const (
	some   presence = 1 << iota // a leaf is
	others                      // and a leaf is not
)

// gathered is what is known of a node of b.
type gathered struct {
	gathered bool
	end      int      // leaves of b up to the end of the node
	leaves   presence // of the leaves right below it that are decided
	all      presence // of all below it; 0: not asked yet
}

func newContentDiff(s *Store, a chunkKey, limit int, j *rangeJoiner) *contentDiff {
	return &contentDiff{s: s, a: a, nodes: map[chunkKey]struct{}{}, seen: map[chunkKey]gathered{}, limit: limit, j: j}
}

func (d *contentDiff) run(b subtree) error {
	err := d.add(d.a)
	if err == nil {
		err = d.gather(b, chunkKey{}, 0)
	}
	if err == nil {
		err = d.decide()
	}
	return err
}

// add takes up the nodes of a.
func (d *contentDiff) add(k chunkKey) error {
	if _, again := d.nodes[k]; again || k.level == 0 {
		return nil
	}
	d.nodes[k] = struct{}{}
	n, err := d.s.loadNode(&k)
	if err != nil {
		return err
	}
	for i := range n.count() {
		child, _ := n.child(i)
		if err := d.add(child); err != nil {
			return err
		}
	}
	return nil
}

// gather takes up the leaves of b, but for those below nodes of a. A node that comes again after its leaves
// were decided is entered only if it has leaves of both kinds: some nodes can stand for more leaves than
// anything could go through.
func (d *contentDiff) gather(b subtree, above chunkKey, offset int64) error {
	if b.key.level == 0 {
		return d.take(diffLeaf{addr: b.key.addr, offset: offset, size: b.size, node: above})
	}
	if _, in := d.nodes[b.key]; in {
		return nil
	}
	at, again := d.seen[b.key]
	again = again && at.gathered
	if again && at.end > d.decided {
		if d.again++; d.again >= d.limit {
			if err := d.decide(); err != nil {
				return err
			}
		}
	}
	if again && at.end <= d.decided {
		has, err := d.presence(b.key)
		switch {
		case err != nil || has == some:
			return err
		case has == others:
			return d.take(diffLeaf{offset: offset, size: b.size, subtree: true})
		}
	}
	key := b.key // on the heap, and b is not: most calls have returned
	n, err := d.s.loadNode(&key)
	if err != nil {
		return err
	}
	for i := range n.count() {
		child, size := n.child(i)
		if child.level == 0 { // of which there can be far more than nodes
			err = d.take(diffLeaf{addr: child.addr, offset: offset, size: size, node: b.key})
		} else {
			err = d.gather(subtree{child, size}, b.key, offset)
		}
		if err != nil {
			return err
		}
		offset += size
	}
	at = d.seen[b.key]
	at.gathered, at.end = true, d.taken
	d.seen[b.key] = at
	return nil
}

func (d *contentDiff) take(l diffLeaf) error {
	d.leaves = append(d.leaves, l)
	if d.taken++; len(d.leaves) == d.limit {
		return d.decide()
	}
	return nil
}

// presence says what is in a of a node whose leaves are all decided.
func (d *contentDiff) presence(k chunkKey) (presence, error) {
	if _, in := d.nodes[k]; in {
		return some, nil
	}
	at := d.seen[k]
	if at.all != 0 || k.level == 1 {
		return at.all | at.leaves, nil
	}
	key := k // likewise
	n, err := d.s.loadNode(&key)
	if err != nil {
		return 0, err
	}
	at.all = at.leaves
	for i := range n.count() {
		if child, _ := n.child(i); child.level > 0 {
			has, err := d.presence(child)
			if err != nil {
				return 0, err
			}
			at.all |= has
		}
	}
	d.seen[k] = at
	return at.all, nil
}

// decide finds out which of the leaves that were gathered are in a, and reports the others.
func (d *contentDiff) decide() error {
	d.order = d.order[:0]
	for i := range d.leaves {
		d.order = append(d.order, int32(i))
	}
	slices.SortFunc(d.order, func(x, y int32) int { return bytes.Compare(d.leaves[x].addr[:], d.leaves[y].addr[:]) })
	if d.a.level == 0 {
		d.found(d.a.addr)
	}
	for k := range d.nodes {
		n, err := d.s.loadNode(&k)
		if err != nil {
			return err
		}
		for i := range n.count() {
			if child, _ := n.child(i); child.level == 0 {
				d.found(child.addr)
			}
		}
	}
	for i := range d.leaves {
		l := &d.leaves[i]
		if !l.subtree && l.node.level > 0 {
			at, has := d.seen[l.node], others
			if l.in {
				has = some
			}
			at.leaves |= has
			d.seen[l.node] = at
		}
		if !l.in {
			if err := d.j.add(Range{Offset: l.offset, Length: l.size}); err != nil {
				return err
			}
		}
	}
	d.leaves, d.decided, d.again = d.leaves[:0], d.taken, 0
	return nil
}

// found says that a has a leaf.
func (d *contentDiff) found(addr Address) {
	i, ok := slices.BinarySearchFunc(d.order, addr, func(at int32, addr Address) int { return bytes.Compare(d.leaves[at].addr[:], addr[:]) })
	for ; ok && i < len(d.order) && d.leaves[d.order[i]].addr == addr; i++ {
		d.leaves[d.order[i]].in = true
	}
}

// rangeJoiner joins ranges of the same kind that touch.
type rangeJoiner struct {
	fn   func(Range) error
	last Range
}

func (j *rangeJoiner) add(r Range) error {
	switch {
	case r.Length == 0:
		return nil
	case j.last.Length > 0 && j.last.InA == r.InA && j.last.Offset+j.last.Length == r.Offset:
		j.last.Length += r.Length
		return nil
	}
	err := j.end()
	j.last = r
	return err
}

func (j *rangeJoiner) end() error {
	if j.last.Length == 0 {
		return nil
	}
	r := j.last
	j.last = Range{}
	return j.fn(r)
}
