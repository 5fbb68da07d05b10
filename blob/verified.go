package blob

import (
	"encoding/binary"
	"sync/atomic"
)

// verified remembers which chunks were verified: for their ids, the first bytes of
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

// mark is what is remembered of an address; never 0.
func mark(a *Address) uint64 { return binary.LittleEndian.Uint64(a[:]) | 1 }

func (s *seenIDs) has(id uint64, a *Address) bool {
	b := s[id/blockIDs%maxBlocks].Load()
	return b != nil && b.number == id/blockIDs && b.marks[id%blockIDs].Load() == mark(a)
}

func (s *seenIDs) add(id uint64, a *Address) {
	place := &s[id/blockIDs%maxBlocks]
	b := place.Load()
	if b == nil || b.number != id/blockIDs {
		// If somebody else replaces it at the same time, one of the two marks is
		// forgotten, and the chunk verified again.
		b = &seenBlock{number: id / blockIDs}
		place.Store(b)
	}
	b.marks[id%blockIDs].Store(mark(a))
}
