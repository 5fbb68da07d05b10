package blob

import (
	"runtime"
	"runtime/debug"
	"sync"

	"holdfast/internal/bridge"
)

// sequence watches in which order the leaves of a blob are read. Those of a blob that was
// written at once have ids one after the other, and lie in the file so. Then
//
//   - the id of the next leaf need not be looked up in the index, whose keys are in no
//     order and so in no cache: the leaf with the next id is taken, and is the right one if it
//     has the right hash;
//   - the system can be told what will be read soon.
//
// Several goroutines may use it at once; if they read in different places they keep
// each other from gaining anything, and do no harm.
type sequence struct {
	mu    sync.Mutex
	last  Address // of the last leaf
	next  uint64  // the id after that of the last leaf
	run   int     // how often in a row the next leaf was the one with the next id
	after int     // the run from which on it is guessed; 0: firstGuess
	ready uint64  // leaves of this run below it were prefetched
	ahead int     // leaves that were, after the last one that was not
}

const (
	firstGuess = 2
	// lastGuess bounds what is lost by wrong guesses, each of which hashes a leaf for
	// nothing: to one for so many leaves.
	lastGuess = 128
	// maxAhead is how many bytes ahead of what is read are made ready, unless a leaf
	// is longer: enough for few calls.
	maxAhead = 2 << 20
)

// guess gives the id that the leaf with the address probably has.
func (q *sequence) guess(a *Address) (id uint64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next > 0 && q.last == *a { // read in pieces
		return q.next - 1, true
	}
	return q.next, q.run >= max(q.after, firstGuess)
}

// wrong is called after a guess that was wrong: the next one is made after a run of twice the length.
func (q *sequence) wrong() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next, q.run, q.after = 0, 0, min(2*max(q.after, firstGuess), lastGuess)
}

// found is called with the id of the leaf that is read, with that address.
func (q *sequence) found(a *Address, id uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case id == q.next && id > 0:
		q.run++
	case id+1 != q.next:
		q.run, q.ready, q.ahead = 0, id, 0
	}
	q.last, q.next = *a, id+1
}

// window tells of the leaf that was found, if it is read for the first time, whether it is to be
// prefetched, with how many bytes after it, of the rest of the blob: with none at first, and in a run with more
// and more.
func (q *sequence) window(id uint64, length int, rest int64) (ahead int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if id < q.ready || id+1 != q.next {
		return 0, false
	}
	if q.run > 0 {
		q.ahead = min(2*q.ahead+1, max(maxAhead/length, 1))
	}
	q.ready = id + 1 + uint64(q.ahead)
	return int(min(int64(q.ahead)*int64(length), rest)), true
}

// guessed gives the leaf if the id that was guessed is right. Whatever is wrong with another leaf
// is nothing to the reader: not even that it cannot be read.
func (r *Reader) guessed(k *chunkKey, e *entry, rest int64) (leaf []byte) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if caught := recover(); caught != nil {
			if _, fault := caught.(interface {
				runtime.Error
				Addr() uintptr
			}); !fault {
				panic(caught)
			}
			leaf = nil
		}
	}()
	p := r.prepared(k, e, rest, false) // it was prefetched with those before
	if p == nil || !r.s.verify(k, e, p, p) {
		return nil
	}
	return p
}

// prepared gives the bytes of a leaf, not verified, and ready for being read.
func (r *Reader) prepared(k *chunkKey, e *entry, rest int64, alone bool) []byte {
	p := r.s.unsealed(e, alone)
	if len(p) == 0 {
		return p
	}
	if m := r.s.memory(k, e, p); !m.has() {
		if ahead, ok := r.order.window(e.id, len(p), rest); ok {
			bridge.Prefetch(r.s.tx, p, ahead)
		}
	}
	return p
}

// leafOf gives a leaf of size bytes, verified, after which the blob has rest.
func (r *Reader) leafOf(k *chunkKey, size, rest int64, x **expanded) ([]byte, error) {
	s := r.s
	// In a writing transaction what was found may be removed while the reader is in use.
	if s.tx.Writable() || !s.isLeaf(k, int(size)) {
		return s.loadContent(k, x)
	}
	if id, ok := r.order.guess(&k.addr); ok {
		e := entry{id: id, length: int(size)}
		r.order.found(&k.addr, id)
		if p := r.guessed(k, &e, rest); p != nil {
			return p, nil
		}
		r.order.wrong()
	}
	e, found, err := s.lookup(k)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, ErrMissing
	}
	if !e.packed {
		r.order.found(&k.addr, e.id)
		if p := r.prepared(k, &e, rest, true); p != nil && s.verify(k, &e, p, p) {
			return p, nil
		}
	}
	return s.loadWith(k, &e, x)
}
