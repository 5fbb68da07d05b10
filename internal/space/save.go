package space

import (
	"encoding/binary"

	"holdfast/internal/page"
)

// UnusedRuns bounds how many runs Unused yields: pages that are free and pages that
// are pending may lie side by side.
func (s *Space) UnusedRuns() uint64 {
	n := uint64(s.pending.lengths.size)
	var end uint64 // of what was visited before
	var last bool  // its last page is a member
	s.free.root.each(s.free.height, 0, func(base, pages uint64, l *leaf) {
		behind := last && base == end
		end = base + pages
		if l != nil {
			var runs uint64
			runs, last = l.runs(behind)
			n += runs
			return
		}
		if last = true; !behind {
			n++
		}
	})
	return n
}

// AppendUnusedBits appends a bit for each page below the high-water mark to b, the
// lowest of a byte first: those of the pages that Unused yields are set. See
// Loader.PutBits.
func (s *Space) AppendUnusedBits(b []byte) []byte {
	start := len(b)
	b = append(b, make([]byte, (s.highWater+7)/8)...)
	set := b[start:]
	s.free.root.each(s.free.height, 0, func(base, pages uint64, l *leaf) {
		if l == nil {
			setBits(set, page.Extent{Start: page.ID(base), N: pages})
			return
		}
		var bytes [leafPages / 8]byte
		for w, x := range l {
			binary.LittleEndian.PutUint64(bytes[w*8:], x)
		}
		copy(set[base/8:], bytes[:])
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
// subtrees all of whose pages are members, for which the leaf is nil.
func (n *node) each(level int, base uint64, visit func(base, pages uint64, l *leaf)) {
	size := sizeOf(level - 1)
	for i := range n.sum {
		at := base + uint64(i)*size
		switch {
		case n.leaf[i] != nil:
			visit(at, size, n.leaf[i])
		case n.child[i] != nil:
			n.child[i].each(level-1, at, visit)
		case n.sum[i].best > 0:
			visit(at, size, nil)
		}
	}
}
