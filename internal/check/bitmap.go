package check

import "holdfast/internal/page"

// bitmap is a set of the pages below a high-water mark.
type bitmap struct {
	bits  []uint64
	limit page.ID
}

func newBitmap(limit page.ID) bitmap {
	return bitmap{bits: make([]uint64, (limit+63)/64), limit: limit}
}

func (b *bitmap) has(id page.ID) bool {
	return id < b.limit && b.bits[id/64]&(1<<(id%64)) != 0
}

// add puts e in; if one of its pages is in already, or beyond the limit, it
// returns the first such and false. The others are put in all the same.
func (b *bitmap) add(e page.Extent) (bad page.ID, ok bool) {
	ok = true
	for id := e.Start; id < e.End(); id++ {
		if id >= b.limit {
			if ok {
				return id, false
			}
			return bad, false
		}
		if b.has(id) && ok {
			bad, ok = id, false
		}
		b.bits[id/64] |= 1 << (id % 64)
	}
	return bad, ok
}

// touches finds the first page of e that is in.
func (b *bitmap) touches(e page.Extent) (page.ID, bool) {
	for id := e.Start; id < e.End() && id < b.limit; id++ {
		if b.has(id) {
			return id, true
		}
	}
	return 0, false
}
