package blob

import (
	"encoding/binary"
	"slices"
	"sync"

	"holdfast/internal/bridge"
)

// batch is what a transaction has gathered and not brought to the buckets yet: chunks
// shorter than a leaf with their bytes, and what is to be added to the counts of
// chunks. Those are differences: so it does not matter in which order several Stores
// of the same bucket bring theirs.
type batch struct {
	table
	arena    []byte
	spilled  int     // entries of which the bytes, unless they are of a node, are not in the arena any more
	nodes    []int32 // entries of nodes whose bytes are there
	list     []int32 // scratch
	maxLevel uint8
	spaces   []workspace // that no Writer has now
	moves    moverMemory // that no mover has now

	long int  // entries whose bytes are in a bucket already
	lean bool // the transaction has had many of them, see spillPages

	came uint64 // new chunks that were brought to the index, see recent.go

	frames []byte // frames of leaves, which are to be stored

	slabs [][]byte // values given to the index, which must stay until the transaction has ended
	slab  int      // in which there is room
}

const (
	maxArena   = 1 << 20 // it is to be in the processor's cache still when it is written
	maxPending = 32 << 10
	maxCounted = 64 << 10 // where only counts are changed
	maxLong    = 2 << 10  // of chunks that are in their bucket already: with leaves of 64 KiB, 128 MiB
	// A chunk that is longer goes to its bucket at once.
	maxGathered = 256 << 10
	// maxProbed is how many of the short leaves that are spilled are looked up first; if they
	// are more, one of so many that are spread over them.
	maxProbed = 64

	slabSize     = 64 << 10
	maxKeptSlabs = 64
)

var batches = sync.Pool{New: func() any { return new(batch) }}

// begin gives the batch of the transaction, and arranges for the flush: the first time, and again when
// another function that is called before the commit goes on after it.
func (s *Store) begin() (*batch, error) {
	if s.failed != nil {
		return nil, s.failed
	}
	if s.batch == nil {
		b := batches.Get().(*batch)
		// A transaction that is rolled back leaves its batch to the garbage collector.
		bridge.OnWritten(s.tx, func() {
			s.batch = nil
			b.release()
		})
		s.batch = b
	}
	if !s.finishes {
		s.finishes = true
		s.tx.BeforeCommit(s.finish)
	}
	s.announce()
	return s.batch, nil
}

// finish is called when the transaction commits: blobs that are not finished are given
// up, and the rest is flushed, unless the store has been deleted.
func (s *Store) finish() error {
	defer func() { s.finishes = false }()
	for s.open != nil {
		_ = s.open.fail(ErrWriterClosed)
	}
	if s.deleted() {
		return nil
	}
	return s.flush()
}

func (b *batch) release() {
	b.clear()
	if len(b.slabs) > maxKeptSlabs {
		clear(b.slabs[maxKeptSlabs:])
		b.slabs = b.slabs[:maxKeptSlabs]
	}
	b.slabs = slices.DeleteFunc(b.slabs, func(slab []byte) bool { return cap(slab) < slabSize }) // what leaveSlabs has left of one
	for i := range b.slabs {
		b.slabs[i] = b.slabs[i][:0]
	}
	b.slab, b.came, b.lean = 0, 0, false
	if cap(b.frames) > maxKeptBuffer+maxArena {
		b.frames = nil
	}
	batches.Put(b)
}

func (b *batch) clear() {
	b.reset()
	b.arena, b.nodes = b.arena[:0], b.nodes[:0]
	b.spilled, b.maxLevel, b.long = 0, 0, 0
}

// value keeps a copy of e as the index has it until the transaction has ended.
func (b *batch) value(e *entry) []byte {
	b.room(maxEntrySize)
	slab := b.slabs[b.slab]
	at := len(slab)
	slab = e.append(slab)
	b.slabs[b.slab] = slab
	return slab[at:len(slab):len(slab)]
}

// keep keeps a copy of p, a value of the index, as long.
func (b *batch) keep(p []byte) []byte {
	if len(p) > slabSize {
		return slices.Clone(p)
	}
	b.room(len(p))
	slab := b.slabs[b.slab]
	at := len(slab)
	slab = append(slab, p...)
	b.slabs[b.slab] = slab
	return slab[at:len(slab):len(slab)]
}

// room sees to it that the slab has room for n bytes.
func (b *batch) room(n int) {
	for b.slab < len(b.slabs) && cap(b.slabs[b.slab])-len(b.slabs[b.slab]) < n {
		b.slab++
	}
	if b.slab == len(b.slabs) {
		b.slabs = append(b.slabs, make([]byte, 0, slabSize))
	}
}

// hold says as what a chunk that is added is counted.
type hold struct{ parents, users int64 }

var (
	asUser = hold{users: 1}
	// A Writer holds what it has not finished as a parent does that is not stored yet. Were it
	// a user, a caller that deletes a blob that it has not put would take what the Writer stands on.
	asParent = hold{parents: 1}
)

// add counts one more of h for the chunk k, whose bytes are p, which is not kept. frame is the frame of p, if
// that was made, and empty if p is to be stored as it is. fresh: it was not known to be there, and its bytes came with it.
func (s *Store) add(k *chunkKey, p, frame []byte, h hold) (fresh bool, err error) {
	b, err := s.begin()
	if err != nil {
		return false, err
	}
	if e := b.find(k); e != nil {
		var lost bool
		if e.state&counted != 0 {
			if lost, err = s.isLost(e); err != nil {
				return false, err
			}
		}
		if !lost {
			e.parents += h.parents
			e.users += h.users
			return false, nil
		}
		if err := s.flush(); err != nil { // the counts; then it comes as any other, with its bytes
			return false, err
		}
	}
	long := s.isLong(k, len(p))
	switch {
	case len(b.entries) >= maxPending || long && b.long >= maxLong:
		err = s.flush()
	case !long && len(b.arena)+len(p) > maxArena:
		err = s.makeRoom(b)
	}
	switch {
	case err != nil:
		return false, err
	case long:
		return s.addLong(b, k, p, frame, h)
	}
	e := b.insert(k)
	if k.level > 0 {
		b.nodes = append(b.nodes, int32(len(b.entries)-1))
	}
	e.state, e.parents, e.users = hasBytes|packed, h.parents, h.users
	e.at, e.length = int32(len(b.arena)), int32(len(p))
	b.arena = append(b.arena, p...)
	b.maxLevel = max(b.maxLevel, k.level)
	return true, nil
}

// isLost tells whether the bytes of an entry are lost that only its counts have come of.
func (s *Store) isLost(e *pending) (bool, error) {
	had, found, err := s.probe(&e.key)
	if err != nil {
		return false, err
	}
	e.state &^= counted
	if !found {
		return false, nil
	}
	return s.unsound(&e.key, &had)
}

// isLong tells whether a chunk is not gathered.
func (s *Store) isLong(k *chunkKey, length int) bool {
	return length > maxGathered || s.isLeaf(k, length)
}

// isLeaf tells whether a chunk belongs into the bucket of leaves, unless it is a frame.
func (s *Store) isLeaf(k *chunkKey, length int) bool {
	if k.level > 0 {
		return false
	}
	if s.options.Chunking == FastCDC {
		return length >= s.options.LeafSize/maxSpread
	}
	return length == s.options.LeafSize
}

// addLong is add for a chunk that is not gathered: it goes to its bucket now.
func (s *Store) addLong(b *batch, k *chunkKey, p, frame []byte, h hold) (fresh bool, err error) {
	had, found, err := s.probe(k)
	if err != nil {
		return false, err
	}
	lost := false
	if found {
		if lost, err = s.unsound(k, &had); err != nil {
			return false, err
		}
	}
	e := pending{parents: h.parents, users: h.users, length: int32(len(p))}
	if !found || lost {
		if frame == nil && s.mayFrame(k, len(p)) {
			b.frames = s.options.appendFrame(b.frames[:0], p)
			frame = b.frames
		}
		if len(frame) > 0 {
			p, e.stored = frame, int32(len(frame))
		}
		if e.stored > 0 || !s.isLeaf(k, len(p)) {
			e.state = packed
		}
		e.state |= hasBytes | appended
		if e.id, err = s.takeID(e.state&packed != 0, e.stored > 0); err != nil {
			return false, s.fail(err)
		}
		binary.BigEndian.PutUint64(s.key[:8], e.id)
		if err := s.bytesBucket(e.state&packed != 0).Append(s.key[:8], p); err != nil {
			return false, s.fail(err)
		}
	}
	e.key = *k
	*b.insert(k) = e
	b.long++
	return !found, nil
}

// fail makes err the error of all that is done with s, and of the commit.
func (s *Store) fail(err error) error {
	if s.failed == nil {
		s.failed = err
	}
	return s.failed
}

// adjust adds to the counts of a chunk that a counted holder has.
func (s *Store) adjust(k *chunkKey, parents, users int64) error {
	b, err := s.begin()
	if err != nil {
		return err
	}
	e := b.find(k)
	if e == nil {
		e = b.insert(k)
		e.state = counted
		b.maxLevel = max(b.maxLevel, k.level)
	}
	e.parents += parents
	e.users += users
	return nil
}
