package space

import (
	"encoding/binary"

	"holdfast/internal/page"
)

// A Loader makes the Space of a file from what the file says of its free pages: a
// set to begin with, and changes of it. Its changes flip bits and do nothing else;
// what finds a run of free pages is computed once, from the bits. So the time
// follows the length of what is said, and not how the pages are scattered.
//
// A Loader that has returned an error is of no use any more.
type Loader struct {
	space *Space
	limit page.ID // pages from here on cannot be free
}

// Load begins with a file whose pages below highWater are all in use.
func Load(highWater page.ID) *Loader {
	s := New(highWater)
	limit := min(s.highWater, maxPages)
	for uint64(limit) > s.free.capacity() {
		s.free.grow()
	}
	return &Loader{space: s, limit: limit}
}

// Put makes pages free. It returns a *page.CorruptError when one lies outside of the
// file's data pages or is free already.
func (l *Loader) Put(e page.Extent) error {
	if err := l.space.checkInside(e); err != nil {
		return err
	}
	if at, ok := l.flip(e, true); !ok {
		return page.Corruptf(at, "freed, but free already")
	}
	return nil
}

// Take makes free pages used. It returns a *page.CorruptError when one is not free.
func (l *Loader) Take(e page.Extent) error {
	if e.N == 0 || e.Start >= l.limit || e.N > uint64(l.limit-e.Start) {
		return page.Corruptf(e.Start, "%d pages from here on are taken, which do not all exist", e.N)
	}
	if at, ok := l.flip(e, false); !ok {
		return page.Corruptf(at, "taken, but not free")
	}
	return nil
}

// flip makes the pages of e free, or used, which they are not yet. Where one is, it
// stops, and returns that page and false.
func (l *Loader) flip(e page.Extent, free bool) (page.ID, bool) {
	set, base := &l.space.free, e.Start&^(leafPages-1)
	if uint64(e.End()-base) > leafPages {
		at, ok := set.flip(set.root, set.height, uint64(e.Start), uint64(e.End()), free)
		return page.ID(at), ok
	}
	lo := int(e.Start - base)
	at, ok := set.leafAt(uint64(base)).flip(lo, lo+int(e.N), free)
	return base + page.ID(at), ok
}

// PutBits is Put for the pages whose bits are set: a bit for each page, from page 0
// on, the lowest of a byte first.
func (l *Loader) PutBits(bits []byte) error {
	for at := 0; at < len(bits); at += leafPages / 8 {
		part := bits[at:min(at+leafPages/8, len(bits))]
		var words leaf
		words.setBytes(part)
		if words == (leaf{}) {
			continue
		}
		base := page.ID(at) * 8
		if at := words.next(0, leafPages, true); base+page.ID(at) < page.FirstDataPage {
			return page.Corruptf(base+page.ID(at), "free space names a meta page")
		}
		if end := base + leafPages; end > l.limit {
			from := max(base, l.limit) - base
			if at := words.next(int(from), leafPages, true); at < leafPages {
				return page.Corruptf(base+page.ID(at), "it is recorded as free, and is not a page of this database, whose last page is %d", l.limit-1)
			}
		}
		into := l.space.free.leafAt(uint64(base))
		for w, x := range words {
			if into[w]&x != 0 {
				return page.Corruptf(base+page.ID(w)*64, "a page of the 64 from here on is freed, but free already")
			}
			into[w] |= x
		}
	}
	return nil
}

// setBytes makes b, at most the bytes of a leaf, the beginning of a leaf of no members.
func (l *leaf) setBytes(b []byte) {
	w := 0
	for ; len(b) >= 8; b = b[8:] {
		l[w] = binary.LittleEndian.Uint64(b)
		w++
	}
	for i, x := range b {
		l[w] |= uint64(x) << (8 * i)
	}
}

// Space ends the loading.
func (l *Loader) Space() *Space {
	s := l.space
	s.free.summarize()
	return s
}

// flip is leaf.flip for the pages below a node. It leaves the summaries of subtrees
// that are not uniform to summarize.
func (s *pageSet) flip(n *node, level int, lo, hi uint64, member bool) (at uint64, ok bool) {
	shift, size := shiftOf(level-1), sizeOf(level-1)
	for i := lo >> shift; i <= (hi-1)>>shift; i++ {
		base := i << shift
		from, to := max(lo, base)-base, min(hi, base+size)-base
		if from == 0 && to == size && !n.isUniform(i) {
			s.gather(n, i, level-1, !member)
		}
		if n.isUniform(i) {
			switch {
			case (n.sum[i].best > 0) == member:
				return base + from, false
			case from == 0 && to == size:
				n.sum[i] = uniform(size, member)
				continue
			}
			s.spread(n, i, level-1)
		}
		var begin int
		if level == 1 {
			begin, ok = n.leaf[i].flip(int(from), int(to), member)
			at = uint64(begin)
		} else {
			at, ok = s.flip(n.child[i], level-1, from, to, member)
		}
		if !ok {
			return base + at, false
		}
	}
	return 0, true
}

// gather takes the memory of child i away if all of its pages are members, or none is,
// and tells whether it did. Without it, files are thinkable whose logs take hours.
func (s *pageSet) gather(n *node, i uint64, level int, member bool) bool {
	if l := n.leaf[i]; l != nil && l.next(0, leafPages, !member) < leafPages {
		return false
	}
	if c := n.child[i]; c != nil {
		for k := range uint64(fanout) {
			if c.isUniform(k) && (c.sum[k].best > 0) != member || !c.isUniform(k) && !s.gather(c, k, level-1, member) {
				return false
			}
		}
	}
	n.sum[i] = uniform(sizeOf(level), member)
	s.drop(n, int(i))
	return true
}

// isUniform tells whether child i is described by its summary alone.
func (n *node) isUniform(i uint64) bool { return n.child[i] == nil && n.leaf[i] == nil }

// spread gives memory to a uniform child of the given level.
func (s *pageSet) spread(n *node, i uint64, level int) {
	member := n.sum[i].best > 0
	if level > 0 {
		n.child[i] = s.pool.takeNode(uniform(sizeOf(level-1), member))
		return
	}
	n.leaf[i] = s.pool.takeLeaf()
	n.leaf[i].fill(0, leafPages, member)
}

// leafAt is the leaf that begins with a page below the capacity.
func (s *pageSet) leafAt(id uint64) *leaf {
	n := s.root
	for level := s.height - 1; level > 0; level-- {
		i := (id >> shiftOf(level)) % fanout
		if n.child[i] == nil {
			s.spread(n, i, level)
		}
		n = n.child[i]
	}
	i := (id >> leafBits) % fanout
	if n.leaf[i] == nil {
		s.spread(n, i, 0)
	}
	return n.leaf[i]
}

// summarize computes all summaries, and gives back the memory of what is uniform.
func (s *pageSet) summarize() {
	s.count = s.summarizeNode(s.root, s.height)
	s.best = s.root.summary(sizeOf(s.height - 1)).best
}

func (s *pageSet) summarizeNode(n *node, level int) (members uint64) {
	size := sizeOf(level - 1)
	for i := range n.sum {
		var of uint64
		switch {
		case n.leaf[i] != nil:
			n.sum[i], of = n.leaf[i].summarize()
		case n.child[i] != nil:
			of = s.summarizeNode(n.child[i], level-1)
			n.sum[i] = n.child[i].summary(sizeOf(level - 2))
		default:
			of = n.sum[i].best
		}
		if members += of; of == 0 || of == size {
			s.drop(n, i)
		}
	}
	return members
}
