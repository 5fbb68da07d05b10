package blob

import (
	"hash/maphash"
	"sync/atomic"

	"holdfast/internal/bridge"
)

// What a reading transaction verifies is remembered by the database, with the pages on which it lies (bridge.MarkOf), so
// once for all of them. A transaction that writes may delete and put its chunks, and the pages of another process's database are
// written where this one does not see it: there the Store remembers, until its transaction ends.

// memory is where it is remembered that a chunk was verified. It is obtained before the chunk is verified.
type memory struct {
	bridge.Mark // if in is nil
	in          *seenIDs
	id, word    uint64
}

// memory tells where it is remembered that stored, the bytes of the entry e, or their content if they are compressed,
// have the address in k.
func (s *Store) memory(k *chunkKey, e *entry, stored []byte) memory {
	if !s.marks {
		return memory{in: s.seen.of(e), id: e.id, word: mark(&k.addr)}
	}
	var found [1 + len(Address{})]byte
	found[0] = byte(s.options.Algorithm)
	if e.stored > 0 { // the bytes themselves may be another chunk's
		found[0] |= 1 << 7
	}
	copy(found[1:], k.addr[:])
	return memory{Mark: bridge.MarkOf(s.tx, stored, found[:])}
}

func (m *memory) has() bool {
	if m.in == nil {
		return m.IsSet()
	}
	return m.in.has(m.id, m.word)
}

func (m *memory) set() {
	if m.in == nil {
		m.Set()
		return
	}
	m.in.add(m.id, m.word)
}

// verify tells whether p, the content of the bytes of the entry e, has the address in k. It is
// computed once.
func (s *Store) verify(k *chunkKey, e *entry, stored, p []byte) bool {
	m := s.memory(k, e, stored)
	if m.has() {
		return true
	}
	if s.options.sum(p) != k.addr {
		return false
	}
	m.set()
	return true
}

// unverified is the Store of a reading transaction as one that has verified nothing, and relies on nothing that others have.
func (s *Store) unverified() *Store {
	return &Store{
		options: s.options, tx: s.tx, bucket: s.bucket, leaves: s.leaves, packs: s.packs, index: s.index, recent: s.recent,
		known: s.known, elsewhere: s.elsewhere, dead: s.dead, pageSize: s.pageSize, failed: s.failed,
	}
}

// verified remembers which chunks were verified: for their ids, marks of
// the addresses that they were found to have. (An id alone would not do: in a damaged
// index two addresses may lead to one chunk.) It is bounded: of blocks of ids that
// share a place the last one is remembered. Several goroutines may use it at once.
type verified struct {
	leaves, packs atomic.Pointer[seenIDs]
}

func (v *verified) of(e *entry) *seenIDs {
	at := &v.leaves
	if e.packed {
		at = &v.packs
	}
	if at.Load() == nil {
		at.CompareAndSwap(nil, new(seenIDs))
	}
	return at.Load()
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

func (s *seenIDs) has(id, word uint64) bool {
	b := s[id/blockIDs%maxBlocks].Load()
	return b != nil && b.number == id/blockIDs && b.marks[id%blockIDs].Load() == word
}

func (s *seenIDs) add(id, word uint64) {
	place := &s[id/blockIDs%maxBlocks]
	b := place.Load()
	if b == nil || b.number != id/blockIDs {
		// If another goroutine replaces it at the same time, one of the two marks is
		// forgotten, and the chunk verified again.
		b = &seenBlock{number: id / blockIDs}
		place.Store(b)
	}
	b.marks[id%blockIDs].Store(word)
}
