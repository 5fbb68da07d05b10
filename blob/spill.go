package blob

// maxHeld is about how many bytes of changed pages a transaction has in memory before it
// writes them early. With less, pages of the index would be written again more often.
const maxHeld = 2 << 20

// spillPages bounds the memory that the transaction takes for what it has changed, in the index
// above all.
func (s *Store) spillPages(b *batch) error {
	done, err := s.tx.Spill(maxHeld)
	if done {
		b.slabs, b.slab = nil, 0 // left to the collector: a reader may look at the index
	}
	return err
}
