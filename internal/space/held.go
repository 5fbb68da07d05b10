package space

import "holdfast/internal/page"

// held is an extent that was freed and that a pinned state may still read. It
// is a node of a leftist heap with the youngest allocation on top. Each pinned
// state has one heap: it is the witness of the extents in it.
//
// Invariant: the witness is the newest pinned state that is older than freed,
// and it is not older than born. So when a witness goes, the only state that can
// take its place is its predecessor among the pinned states, the same one for
// the whole heap: extents born after that one come off the top and are
// released, and the rest is melded into the predecessor's heap in one step.
type held struct {
	extent      page.Extent
	born, freed page.TxID
	left, right *held
	rank        int // nodes on the way down the right side
}

func rankOf(h *held) int {
	if h == nil {
		return 0
	}
	return h.rank
}

// meld joins two heaps. It goes down their right sides only, which are
// logarithmic in length.
func meld(a, b *held) *held {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.born < b.born:
		a, b = b, a
	}
	a.right = meld(a.right, b)
	if rankOf(a.left) < rankOf(a.right) {
		a.left, a.right = a.right, a.left
	}
	a.rank = rankOf(a.right) + 1
	return a
}

// pop takes the top off a heap.
func pop(h *held) (top, rest *held) {
	rest = meld(h.left, h.right)
	h.left, h.right, h.rank = nil, nil, 1
	return h, rest
}

// heldPool keeps unused nodes, linked through left.
type heldPool struct {
	free *held
	n    int
}

const maxSpareHeld = 256 // 16 KiB

func (p *heldPool) take(e page.Extent, born, freed page.TxID) *held {
	h := p.free
	if h == nil {
		h = new(held)
	} else {
		p.free = h.left
		p.n--
	}
	*h = held{extent: e, born: born, freed: freed, rank: 1}
	return h
}

func (p *heldPool) put(h *held) {
	if p.n < maxSpareHeld {
		h.left = p.free
		p.free = h
		p.n++
	}
}
