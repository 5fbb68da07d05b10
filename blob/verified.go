package blob

import "sync/atomic"

// verified remembers which chunks were verified, by their ids. It is exact, and
// bounded: of blocks of ids that share a place the last one is remembered. Several
// goroutines may use it at once.
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
	blockBits = 1 << 13 // ids in a block
	maxBlocks = 256
)

type seenIDs [maxBlocks]atomic.Pointer[seenBlock]

type seenBlock struct {
	number uint64
	bits   [blockBits / 64]atomic.Uint64
}

func (s *seenIDs) has(id uint64) bool {
	b := s[id/blockBits%maxBlocks].Load()
	return b != nil && b.number == id/blockBits && b.bits[id%blockBits/64].Load()&(1<<(id%64)) != 0
}

func (s *seenIDs) add(id uint64) {
	place := &s[id/blockBits%maxBlocks]
	b := place.Load()
	if b == nil || b.number != id/blockBits {
		// If somebody else replaces it at the same time, one of the two marks is
		// forgotten, and the chunk verified again.
		b = &seenBlock{number: id / blockBits}
		place.Store(b)
	}
	b.bits[id%blockBits/64].Or(1 << (id % 64))
}
