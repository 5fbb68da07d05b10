package blob

// A transaction has about maxHeld bytes of changed pages in memory before it writes them early. With less, pages of the index would be
// written again more often. One with as many long chunks as leanFrom brings so much besides the index that this matters little: it
// has leanHeld.
const (
	maxHeld  = 2 << 20
	leanHeld = 128 << 10
	leanFrom = maxLong / 8
)

// spillPages bounds the memory that the transaction takes for what it has changed, in the index
// above all.
func (s *Store) spillPages(b *batch) error {
	held := int64(maxHeld)
	if b.lean = b.lean || b.long >= leanFrom; b.lean {
		held = leanHeld
	}
	done, err := s.tx.Spill(held)
	if done {
		b.leaveSlabs()
	}
	return err
}

// leaveSlabs leaves what the slabs have to the collector, since a reader may look at the index still, but for the room of the last one.
func (b *batch) leaveSlabs() {
	if b.slab >= len(b.slabs) {
		return
	}
	last := b.slabs[b.slab]
	clear(b.slabs)
	b.slabs, b.slab = append(b.slabs[:0], last[len(last):]), 0
}
