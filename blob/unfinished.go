package blob

import "fmt"

// The sequence of index counts what has come to it in its lower bits. The upper ones say, while a
// transaction goes on, how many Stores of it have something unfinished: an open Writer, or what was
// gathered and not flushed. No call of one Store sees what another has gathered, so Check asks for it
// there. With the number stand some bits of the transaction's: what a damaged bucket has there means
// nothing.
const (
	comeBits = 48
	comeMask = 1<<comeBits - 1

	maxUnfinished = 1<<8 - 1
)

// unfinishedStores is how many Stores of the transaction have something unfinished.
func (s *Store) unfinishedStores() uint64 {
	m := s.index.Sequence() >> comeBits
	if m>>8 != uint64(s.tx.ID())&0xff {
		return 0
	}
	return m & maxUnfinished
}

func (s *Store) setUnfinished(n uint64) {
	m := uint64(0)
	if n > 0 {
		m = uint64(s.tx.ID())&0xff<<8 | n
	}
	// It fails only where the bucket has been deleted, and then no other Store asks.
	_ = s.index.SetSequence(s.index.Sequence()&comeMask | m<<comeBits)
}

// announce says that s has something unfinished.
func (s *Store) announce() {
	s.changes++
	if s.announced {
		return
	}
	if n := s.unfinishedStores(); n < maxUnfinished {
		s.announced = true
		s.setUnfinished(n + 1)
	}
}

// withdraw says that it has not, if that is so.
func (s *Store) withdraw() {
	if !s.announced || s.open != nil || s.batch != nil && len(s.batch.entries) > 0 {
		return
	}
	s.announced = false
	if n := s.unfinishedStores(); n > 0 {
		s.setUnfinished(n - 1)
	}
}

// alone is the error of a check with other Stores of the transaction that have something unfinished: what
// it would count is neither the state before nor the one after.
func (s *Store) alone() error {
	if !s.tx.Writable() {
		return nil
	}
	n := s.unfinishedStores()
	if s.announced {
		n -= min(n, 1)
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d other Stores of this transaction have open writers or chunks that are not in their buckets yet: check before they write, or in a transaction of its own", ErrUnfinished, n)
}

// held calls fn with each chunk that the open Writers of the Store hold, as often as they do.
func (s *Store) held(fn func(k chunkKey) error) error {
	shape := s.options.shape()
	for w := s.open; w != nil; w = w.next {
		for level := range w.tree.levels {
			nb := &w.tree.levels[level]
			for i := range nb.n {
				if err := fn(nb.child(shape, i, uint8(level))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
