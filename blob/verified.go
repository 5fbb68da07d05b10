package blob

import (
	"hash/maphash"
	"sync/atomic"
)

// verified remembers which chunks were verified: for their ids, marks of
// the addresses that they were found to have. (An id alone would not do: in a damaged
// index two addresses may lead to one chunk.) It is bounded: of blocks of ids that
// share a place the last one is remembered. Several goroutines may use it at once.
type verified struct {
	leaves, packs seenIDs
}

func (v *verified) of(e *entry) *seenIDs {
	if e.packed {
		return &v.packs
	}
	return &v.leaves
}

const (
	blockIDs  = 512
	maxBlocks = 256
)

type seenIDs [maxBlocks]atomic.Pointer[seenBlock]

type seenBlock struct {
	number uint64
	marks  [blockIDs]atomic.Uint64
}

var markSeed = maphash.MakeSeed()

// mark is what is remembered of an address; never 0. Since the seed is secret, no one can make two
// contents with the same mark: a reader that guesses an id would take the one for the other.
func mark(a *Address) uint64 { return maphash.Bytes(markSeed, a[:]) | 1 }

func (s *seenIDs) has(id uint64, a *Address) bool {
	b := s[id/blockIDs%maxBlocks].Load()
	return b != nil && b.number == id/blockIDs && b.marks[id%blockIDs].Load() == mark(a)
}

func (s *seenIDs) add(id uint64, a *Address) {
	place := &s[id/blockIDs%maxBlocks]
	b := place.Load()
	if b == nil || b.number != id/blockIDs {
		// If another goroutine replaces it at the same time, one of the two marks is
		// forgotten, and the chunk verified again.
		b = &seenBlock{number: id / blockIDs}
		place.Store(b)
	}
	b.marks[id%blockIDs].Store(mark(a))
}
