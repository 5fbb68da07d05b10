package space

import (
	"iter"

	"holdfast/internal/page"
)

// A pageSet is a set of pages in which the first run of n members is found,
// and any run added or removed, in time that depends on the height of a tree
// and not on how many members there are.
//
// The leaves of the tree are bitmaps. Every subtree is described in its parent
// by a summary: the number of members at its start and at its end, and the
// longest run within. A subtree whose pages are all members, or none of them,
// is described by the summary alone and has no memory of its own, so that a
// high-water mark of any size costs nothing until pages below it differ.
//
// Invariants: a child pointer is nil exactly when the child is uniform; the
// root is never nil; pages at or above the capacity are not members.
type pageSet struct {
	root   *node
	height int    // levels of nodes above the leaves, at least 1
	count  uint64 // members
	best   uint64 // length of the longest run
	pool   pool
}

const (
	fanoutBits = 3
	fanout     = 1 << fanoutBits

	// maxPages bounds page numbers so that no arithmetic on page numbers can
	// overflow. Files end far earlier: the smallest page and the largest file
	// offset make 2^54 pages.
	maxPages = 1 << 62
)

// A summary describes the members among a power of two of consecutive pages.
type summary struct {
	head uint64 // members before the first page that is none
	best uint64 // length of the longest run
	tail uint64 // members after the last page that is none
}

// A node stands for fanout subtrees of equal size. In the lowest level of nodes
// the subtrees are leaves, above it they are nodes.
type node struct {
	sum   [fanout]summary
	child [fanout]*node
	leaf  [fanout]*leaf
}

// shiftOf is the logarithm of how many pages a subtree of a level has: a leaf
// is of level 0.
func shiftOf(level int) int { return leafBits + fanoutBits*level }

func sizeOf(level int) uint64 { return 1 << shiftOf(level) }

func uniform(size uint64, member bool) summary {
	if !member {
		return summary{}
	}
	return summary{head: size, best: size, tail: size}
}

func (s *pageSet) init() {
	*s = pageSet{root: new(node), height: 1}
}

func (s *pageSet) capacity() uint64 { return sizeOf(s.height) }

// add makes the pages of e members. None of them may be one.
func (s *pageSet) add(e page.Extent) {
	for uint64(e.End()) > s.capacity() {
		s.grow()
	}
	s.write(e, true)
	s.count += e.N
}

// remove makes the pages of e no members. All of them must be.
func (s *pageSet) remove(e page.Extent) {
	s.write(e, false)
	s.count -= e.N
}

func (s *pageSet) write(e page.Extent, member bool) {
	if s.writeNode(s.root, s.height, uint64(e.Start), uint64(e.End()), member) {
		s.best = s.root.summary(sizeOf(s.height - 1)).best
	}
}

// grow puts a level on top, so that the capacity rises by the factor fanout.
func (s *pageSet) grow() {
	if s.count > 0 {
		top := s.pool.takeNode(summary{})
		top.sum[0] = s.root.summary(sizeOf(s.height - 1))
		top.child[0] = s.root
		s.root = top
	}
	s.height++
}

// writeNode makes the pages [lo, hi), counted from the first page of n, members
// or no members, and reports whether the summary of n may be another now.
func (s *pageSet) writeNode(n *node, level int, lo, hi uint64, member bool) (changed bool) {
	shift := shiftOf(level - 1)
	for i := lo >> shift; i <= (hi-1)>>shift; i++ {
		base := i << shift
		end := base + sizeOf(level-1)
		old := n.sum[i]
		s.writeChild(n, int(i), level-1, max(lo, base)-base, min(hi, end)-base, member)
		changed = changed || n.sum[i] != old
	}
	return changed
}

// writeChild is writeNode for child i of n, a subtree of the given level.
func (s *pageSet) writeChild(n *node, i, level int, lo, hi uint64, member bool) {
	size := sizeOf(level)
	if lo == 0 && hi == size {
		// It was uniform before, and is now the other way round.
		n.sum[i] = uniform(size, member)
		return
	}
	switch {
	case level > 0:
		if n.child[i] == nil {
			s.spread(n, uint64(i), level)
		}
		if s.writeNode(n.child[i], level, lo, hi, member) {
			n.sum[i] = n.child[i].summary(sizeOf(level - 1))
		}
	default:
		if n.leaf[i] == nil {
			s.spread(n, uint64(i), level)
		}
		if member {
			n.sum[i] = n.leaf[i].set(int(lo), int(hi), n.sum[i])
		} else {
			n.sum[i] = n.leaf[i].unset(int(lo), int(hi), n.sum[i])
		}
	}
	if best := n.sum[i].best; best == 0 || best == size {
		s.drop(n, i)
	}
}

// drop gives the memory of child i of n back, which has become uniform.
func (s *pageSet) drop(n *node, i int) {
	if l := n.leaf[i]; l != nil {
		n.leaf[i] = nil
		s.pool.putLeaf(l)
	}
	if c := n.child[i]; c != nil {
		n.child[i] = nil
		s.pool.putNode(c)
	}
}

// summary combines the summaries of the children, of size pages each.
func (n *node) summary(size uint64) summary {
	var out summary
	var run uint64
	whole := true
	for i := range n.sum {
		c := &n.sum[i]
		if c.head == size {
			run += size
			continue
		}
		run += c.head
		if whole {
			out.head, whole = run, false
		}
		out.best = max(out.best, run, c.best)
		run = c.tail
	}
	if whole {
		out.head = run
	}
	out.best = max(out.best, run)
	out.tail = run
	return out
}

// find returns where the first run of n members begins, and whether there is
// one.
func (s *pageSet) find(n uint64) (page.ID, bool) {
	if s.best < n {
		return 0, false
	}
	at, base := s.root, uint64(0)
	for level := s.height - 1; ; level-- {
		i, start := at.step(n, sizeOf(level))
		switch {
		case i < 0:
			return page.ID(base + start), true
		case level == 0:
			return page.ID(base + start + uint64(at.leaf[i].find(int(n)))), true
		}
		at, base = at.child[i], base+start
	}
}

// step looks for the first run of n members below the node. Either the run
// begins where a child's tail or head does: then i is negative and start is the
// place. Or it is all within child i, which begins at start.
func (n *node) step(pages, size uint64) (i int, start uint64) {
	var run uint64 // members directly before this child
	for i := range n.sum {
		c := &n.sum[i]
		start := uint64(i) * size
		switch {
		case run+c.head >= pages:
			return -1, start - run
		case c.best >= pages:
			return i, start
		case c.head == size:
			run += size
		default:
			run = c.tail
		}
	}
	panic("space: summary promises a run that its children do not have")
}

// runBefore is where the run of members begins that ends before page end, or end when
// the page before is none.
func (s *pageSet) runBefore(end page.ID) page.ID {
	if uint64(end) > s.capacity() || end == 0 {
		return end
	}
	return page.ID(s.root.runBefore(s.height, uint64(end)))
}

// runBefore is pageSet.runBefore below a node, in pages counted from its first.
func (n *node) runBefore(level int, end uint64) uint64 {
	shift, size := shiftOf(level-1), sizeOf(level-1)
	for end > 0 {
		i := (end - 1) >> shift
		base := i << shift
		var begin uint64 // of the run, within the child
		switch best := n.sum[i].best; {
		case best == 0:
			return end
		case best == size:
		case level == 1:
			begin = uint64(n.leaf[i].runBefore(int(end - base)))
		default:
			begin = n.child[i].runBefore(level-1, end-base)
		}
		if end = base + begin; begin > 0 {
			return end
		}
	}
	return 0
}

// contains reports whether a page is a member.
func (s *pageSet) contains(id page.ID) bool {
	if id >= maxPages {
		return false
	}
	_, ok := s.next(id, id+1, true)
	return ok
}

// runFrom is the first run of members at or after from, cut off at limit.
func (s *pageSet) runFrom(from, limit page.ID) (page.Extent, bool) {
	start, ok := s.next(from, limit, true)
	if !ok {
		return page.Extent{}, false
	}
	end, _ := s.next(start, limit, false)
	return page.Extent{Start: start, N: uint64(end - start)}, true
}

// runs yields the maximal runs of members in ascending order.
func (s *pageSet) runs() iter.Seq[page.Extent] {
	return func(yield func(page.Extent) bool) {
		e, ok := s.runFrom(0, maxPages)
		for ok && yield(e) {
			e, ok = s.runFrom(e.End(), maxPages)
		}
	}
}

// next is the first page of [from, limit) that is a member (or the first that is
// none), and whether there is one; if not, it is limit.
func (s *pageSet) next(from, limit page.ID, member bool) (page.ID, bool) {
	beyond := page.ID(s.capacity())
	if from < beyond {
		at, ok := s.root.next(s.height, uint64(from), uint64(min(limit, beyond)), member)
		if ok || limit <= beyond {
			return page.ID(at), ok
		}
	}
	if member || from >= limit {
		return limit, false
	}
	return max(from, beyond), true
}

// next is pageSet.next below a node, in pages counted from its first. When it
// finds none it returns to.
func (n *node) next(level int, from, to uint64, member bool) (uint64, bool) {
	shift := shiftOf(level - 1)
	for i := from >> shift; i<<shift < to; i++ {
		base := i << shift
		lo, hi := max(from, base)-base, min(to-base, sizeOf(level-1))
		var at uint64
		var ok bool
		switch best := n.sum[i].best; {
		case best == 0 || best == sizeOf(level-1):
			at, ok = lo, (best != 0) == member
		case level == 1:
			at = uint64(n.leaf[i].next(int(lo), int(hi), member))
			ok = at < hi
		default:
			at, ok = n.child[i].next(level-1, lo, hi, member)
		}
		if ok {
			return base + at, true
		}
	}
	return to, false
}

// A pool keeps a few unused leaves and nodes, so that a set whose members come
// and go does not feed the garbage collector.
type pool struct {
	leaves []*leaf
	nodes  []*node
}

// What a pool keeps at most: 8 KiB of leaves and 10 KiB of nodes.
const (
	maxSpareLeaves = 32
	maxSpareNodes  = 32
)

// takeLeaf returns a leaf with arbitrary bits.
func (p *pool) takeLeaf() *leaf {
	last := len(p.leaves) - 1
	if last < 0 {
		return new(leaf)
	}
	l := p.leaves[last]
	p.leaves = p.leaves[:last]
	return l
}

func (p *pool) putLeaf(l *leaf) {
	if len(p.leaves) < maxSpareLeaves {
		p.leaves = append(p.leaves, l)
	}
}

// takeNode returns a node whose children are uniform.
func (p *pool) takeNode(child summary) *node {
	var n *node
	if last := len(p.nodes) - 1; last < 0 {
		n = new(node)
	} else {
		n = p.nodes[last]
		p.nodes = p.nodes[:last]
	}
	for i := range n.sum {
		n.sum[i] = child
	}
	return n
}

// putNode takes a node that has no children any more.
func (p *pool) putNode(n *node) {
	if len(p.nodes) < maxSpareNodes {
		p.nodes = append(p.nodes, n)
	}
}
