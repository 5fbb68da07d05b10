package blob

import (
	"crypto/sha256"
	"hash"
)

// hasher computes the addresses and the digest of leaves, and makes their frames, concurrently with the goroutine that
// stores them. Leaves are in flight, in their order, until they are stored.
type hasher struct {
	w                       *Writer
	addressLane, digestLane *lane
	frameLane               *lane
	digest                  hash.Hash // used by the lane of digests

	begun     bool // the blob; these are of it:
	options   Options
	addresses *lane // nil: computed by the caller
	digests   *lane // nil: no digest
	frames    *lane // nil: frames are not made here

	ring     [laneDepth]flight
	first    int
	inFlight int
	hashed   int      // of these, whose addresses are known
	lent     bool     // the last leaf pushed is in the caller's memory
	current  int      // the arena that is being filled, w.leaf
	arenas   [2]arena // for leaves that come in pieces
}

// flight is a leaf that is being hashed or stored.
type flight struct {
	p       []byte
	address task
	digest  task
	frame   task
	err     error // of address
	stored  bool
	arena   int // in which it is; -1: in the caller's memory
}

type arena struct {
	buf  []byte
	busy bool
}

// hasher gives what hashes the leaves of the blob; nil: the caller's goroutine does.
func (w *Writer) hasher() *hasher {
	if !w.concurrent && !w.wantsDigest() {
		return nil
	}
	h := w.hashing
	if h == nil {
		h = &hasher{w: w, digest: sha256.New()}
		h.addressLane = newLane(func(t *task) {
			t.sum = h.options.sum(t.p)
			t.promises = h.frames != nil && h.options.compresses(len(t.p)) && promises(t.p)
		})
		h.digestLane = newLane(func(t *task) { h.digest.Write(t.p) })
		w.hashing = h
	}
	if !h.begun {
		h.begun, h.addresses, h.digests, h.frames = true, nil, nil, nil
		h.options = w.s.options
		if w.concurrent {
			h.addresses = h.addressLane
			if h.options.hasFrames() {
				h.frames = h.toFrames()
			}
		}
		if w.wantsDigest() {
			h.digests = h.digestLane
			h.digest.Reset()
		}
	}
	return h
}

// push takes a leaf. If it is not lent, it is w.leaf, and w.leaf is other memory afterwards.
func (h *hasher) push(p []byte, lent bool) error {
	if h.inFlight == laneDepth {
		if err := h.pop(); err != nil {
			return err
		}
	}
	f := &h.ring[(h.first+h.inFlight)%laneDepth]
	f.p, f.err, f.stored, f.arena = p, nil, false, -1
	h.inFlight++
	h.lent = lent
	if h.addresses != nil {
		h.addresses.start(&f.address, p)
	}
	if h.digests != nil {
		h.digests.start(&f.digest, p)
	}
	if !lent {
		if err := h.swap(f); err != nil {
			return err
		}
	}
	if h.addresses == nil {
		return h.store(f)
	}
	return nil
}

// swap makes w.leaf the other arena, as soon as nothing of it is in flight.
func (h *hasher) swap(f *flight) error {
	f.arena = h.current
	h.arenas[h.current] = arena{h.w.leaf, true}
	h.current = 1 - h.current
	h.w.leaf = nil // that it is in flight holds after an error too
	for h.arenas[h.current].busy {
		if err := h.pop(); err != nil {
			return err
		}
	}
	h.w.leaf = h.arenas[h.current].buf[:0]
	return nil
}

// store stores a leaf when its address is known.
func (h *hasher) store(f *flight) error {
	if f.stored {
		return nil
	}
	f.stored = true
	if h.addresses == nil {
		return h.w.store(h.options.sum(f.p), f.p, nil)
	}
	if h.frames != nil {
		return h.storeFrame(f)
	}
	if err := h.addresses.helped(&f.address); err != nil {
		return err
	}
	return h.w.store(f.address.sum, f.p, nil)
}

// pop stores the oldest leaf, and waits until its memory is free.
func (h *hasher) pop() error {
	f := &h.ring[h.first]
	err := h.store(f)
	return firstError(err, h.release(f))
}

// release waits until a leaf is not read any more.
func (h *hasher) release(f *flight) error {
	err := firstError(f.address.wait(), f.digest.wait(), f.frame.wait())
	f.p = nil
	f.frame.releaseFrame()
	if f.arena >= 0 {
		h.arenas[f.arena].busy = false
	}
	h.first = (h.first + 1) % laneDepth
	h.inFlight--
	h.hashed = max(h.hashed-1, 0)
	return err
}

// settle gives the caller's memory back to it.
func (h *hasher) settle() error {
	if !h.lent {
		return nil
	}
	h.lent = false
	return h.drain()
}

// drain stores all that is in flight.
func (h *hasher) drain() error {
	for h.inFlight > 0 {
		if err := h.pop(); err != nil {
			return err
		}
	}
	return nil
}

// drop gives up all that is in flight.
func (h *hasher) drop() {
	for h.inFlight > 0 {
		_ = h.release(&h.ring[h.first])
	}
	h.lent, h.begun = false, false
}

// ExpectDigest has Commit refuse a blob whose SHA-256 as a whole is another:
// ErrDigestMismatch. It implies Digest for this blob, and must be called before its first Write.
func (w *Writer) ExpectDigest(sum [32]byte) { w.expected.digest = &sum }

// Digest says whether the SHA-256 of whole blobs is computed besides
// the addresses of their chunks, by a goroutine of its own. It must be called before the
// first Write of a blob and holds for all that follow.
func (w *Writer) Digest(on bool) { w.digest = on }

// DigestSum is the SHA-256 of the whole blob that was committed last, if Digest or
// ExpectDigest was set for it.
func (w *Writer) DigestSum() (sum [32]byte, ok bool) { return w.sum, w.hasSum }

// Concurrent says whether a goroutine hashes leaves while the caller's goroutine stores
// the ones before. It must be called before the first Write of a blob and holds for all
// that follow. Blobs of one leaf are hashed by the caller's goroutine all the same.
func (w *Writer) Concurrent(on bool) { w.concurrent = on }

// wantsDigest tells whether the digest of the blob is to be known.
func (w *Writer) wantsDigest() bool { return w.digest || w.expected.digest != nil }

// only adds the one leaf of a blob. Where its address is its digest nothing is computed twice.
func (w *Writer) only(p []byte) error {
	addr := w.s.options.sum(p)
	if w.wantsDigest() {
		w.sum, w.hasSum = addr, true
		if w.s.options.Algorithm != SHA256 {
			w.sum = sha256.Sum256(p)
		}
	}
	return w.store(addr, p, nil)
}

// sumUp makes the digest of the leaves that were pushed that of the blob.
func (h *hasher) sumUp() {
	if h.digests != nil {
		h.digest.Sum(h.w.sum[:0])
		h.w.hasSum = true
	}
	h.begun = false
}
