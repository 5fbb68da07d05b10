package space

import (
	"encoding/binary"
	"math"

	"holdfast/internal/page"
)

// UnusedRuns bounds how many runs Unused yields: pages that are free and pages that
// are pending may lie side by side.
func (s *Space) UnusedRuns() uint64 {
	n, _ := s.unusedRuns(math.MaxUint64)
	return n
}

// FewUnusedRuns tells whether UnusedRuns is at most so many. It looks at about as many
// leaves of the set, however long that is.
func (s *Space) FewUnusedRuns(most uint64) bool {
	n, _ := s.unusedRuns(most)
	return n <= most
}

// unusedRuns counts until it has found more than most, and how many leaves it has visited.
func (s *Space) unusedRuns(most uint64) (n uint64, visited int) {
	n = uint64(s.pending.lengths.size)
	if n > most {
		return n, 0
	}
	var end uint64 // of what was visited before
	var last bool  // its last page is a member
	s.free.root.each(s.free.height, 0, func(base, pages uint64, l *leaf) bool {
		visited++
		follows := last && base == end
		end = base + pages
		if l != nil {
			var runs uint64
			runs, last = l.runs(follows)
			n += runs
			return n <= most
		}
		if last = true; !follows {
			n++
		}
		return n <= most
	})
	return n, visited
}

// AppendUnusedBits appends a bit for each page below the high-water mark to b, the
// lowest of a byte first: those of the pages that Unused yields are set. See
// Loader.PutBits.
func (s *Space) AppendUnusedBits(b []byte) []byte {
	start := len(b)
	b = append(b, make([]byte, (s.highWater+7)/8)...)
	set := b[start:]
	s.free.root.each(s.free.height, 0, func(base, pages uint64, l *leaf) bool {
		if l == nil {
			setBits(set, page.Extent{Start: page.ID(base), N: pages})
			return true
		}
		var bytes [leafPages / 8]byte
		for w, x := range l {
			binary.LittleEndian.PutUint64(bytes[w*8:], x)
		}
		copy(set[base/8:], bytes[:])
		return true
	})
	for e, ok := s.pending.runFrom(0, maxPages); ok; e, ok = s.pending.runFrom(e.End(), maxPages) {
		setBits(set, e)
	}
	return b
}

// setBits sets the bits of the pages of e.
func setBits(b []byte, e page.Extent) {
	id, end := e.Start, e.End()
	for ; id < end && id%8 != 0; id++ {
		b[id/8] |= 1 << (id % 8)
	}
	for ; id+8 <= end; id += 8 {
		b[id/8] = 0xFF
	}
	for ; id < end; id++ {
		b[id/8] |= 1 << (id % 8)
	}
}

// each visits, ascending, the leaves below a node that begins with page base, and the
// subtrees all of whose pages are members, for which the leaf is nil, until visit returns
// false; then it does.
func (n *node) each(level int, base uint64, visit func(base, pages uint64, l *leaf) bool) bool {
	size := sizeOf(level - 1)
	for i := range n.sum {
		at := base + uint64(i)*size
		switch {
		case n.leaf[i] != nil:
			if !visit(at, size, n.leaf[i]) {
				return false
			}
		case n.child[i] != nil:
			if !n.child[i].each(level-1, at, visit) {
				return false
			}
		case n.sum[i].best > 0:
			if !visit(at, size, nil) {
				return false
			}
		}
	}
	return true
}
