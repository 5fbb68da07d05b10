package blob

import (
	"fmt"
	"runtime"
	"sync"

	zip "github.com/klauspost/compress"
	"github.com/klauspost/compress/zstd"
)

// Compression is how leaves are compressed.
type Compression uint8

// Ways of compressing. In a store all leaves are compressed in the same way, if that makes them shorter by an eighth.
// Nodes, and leaves of less than 512 bytes, never are.
const (
	// NoCompression stores leaves as they are.
	NoCompression Compression = 0
	// Zstd stores leaves as frames of Zstandard.
	Zstd Compression = 1
)

// String is the name of the way.
func (c Compression) String() string {
	switch c {
	case NoCompression:
		return "none"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("compression %d", uint8(c))
}

// A compressed leaf is a frame of Zstandard (RFC 8878) that says how long its content is. It stands in the bucket of
// short chunks, under an odd id; what stands there as it is has an even id. So what bytes mean can be known without an
// entry of the index, and a repair can find out whose they are: the content of a leaf may be a frame, too.

// minCompressed is how many bytes a leaf has that is compressed, at least. What compressing saves of shorter ones is little next
// to their entries in the index.
const minCompressed = 512

// isFrame tells whether bytes are compressed, in a store with compression.
func isFrame(isPacked bool, id uint64) bool { return isPacked && id%2 == 1 }

func (s *Store) isFrame(isPacked bool, id uint64) bool {
	return s.options.Compression != NoCompression && isFrame(isPacked, id)
}

// compresses tells whether a chunk is compressed if that pays.
func (s *Store) compresses(k *chunkKey, length int) bool {
	return s.options.Compression != NoCompression && k.level == 0 && length >= minCompressed
}

// pays tells whether a chunk is stored compressed: reading it takes longer then.
func pays(length, compressed int) bool { return compressed <= length-length/8 }

// Encoders and decoders are for one goroutine each. One that has met a fault of the memory that it reads is not used again.
var (
	// An encoder takes some 1.5 MiB, and twice its window more for leaves of more than 128 KiB.
	encoders = sync.Pool{New: func() any {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
			zstd.WithSingleSegment(true), zstd.WithAllLitEntropyCompression(true), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // of options that do not depend on anything
		}
		return e
	}}
	decoders = sync.Pool{New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxChunk),
			zstd.WithDecoderMaxWindow(maxChunk), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
		if err != nil {
			panic(err)
		}
		return d
	}}
)

// A quick test spares bytes that are compressed already, or encrypted, the encoder: it looks at samples, and takes some 4 µs, a
// twentieth of the time that the hash of a leaf of 64 KiB takes.
const (
	samples     = 4
	sampleBytes = 1 << 10
	// minEstimate is of what compress.Estimate gives for the best sample. Of text it is 0.5, of machine code 0.3 and more, of
	// base64 0.21, of random bytes below 0.1; of nine in ten leaves of zip files below 0.2.
	minEstimate = 0.2
)

// promises tells whether p may become shorter.
func promises(p []byte) bool {
	if len(p) <= samples*sampleBytes {
		return zip.Estimate(p) >= minEstimate
	}
	for i := range samples {
		at := (2*i + 1) * (len(p) - sampleBytes) / (2 * samples)
		if zip.Estimate(p[at:at+sampleBytes]) >= minEstimate {
			return true
		}
	}
	return false
}

// compress appends p to dst as a frame, and nothing if that does not pay.
func compress(dst, p []byte) []byte {
	if !promises(p) {
		return dst
	}
	return encode(dst, p)
}

// encode is compress of what promises to become shorter.
func encode(dst, p []byte) []byte {
	e := encoders.Get().(*zstd.Encoder)
	frame := e.EncodeAll(p, dst)
	encoders.Put(e)
	if !pays(len(p), len(frame)-len(dst)) {
		return frame[:len(dst)]
	}
	return frame
}

// contentLength is how long the content of a frame is, as it says itself; false if no leaf of the store is so long.
func (s *Store) contentLength(frame []byte) (int, bool) {
	var h zstd.Header
	if h.Decode(frame) != nil || h.Skippable || !h.HasFCS || h.FrameContentSize > uint64(s.options.shape().maxLeaf()) {
		return 0, false
	}
	return int(h.FrameContentSize), true
}

// decompress gives the content of a frame, n bytes, in the memory of dst if that is enough.
func (s *Store) decompress(dst, frame []byte, n int) ([]byte, error) {
	if said, ok := s.contentLength(frame); !ok || said != n {
		return nil, corruptf("compressed leaf: it does not say that it has %d bytes of content", n)
	}
	if cap(dst) < n {
		dst = make([]byte, 0, n)
	}
	d := decoders.Get().(*zstd.Decoder)
	p, err := d.DecodeAll(frame, dst[:0:n])
	decoders.Put(d)
	switch {
	case err != nil:
		return nil, corruptf("compressed leaf: %v", err)
	case len(p) != n:
		return nil, corruptf("compressed leaf: %d bytes of content, not %d", len(p), n)
	}
	return p, nil
}

// expanded is the content of a compressed leaf in memory.
type expanded struct {
	addr  Address // of the content, if it is whole and was verified
	whole bool
	p     []byte
}

var expansions = sync.Pool{New: func() any { return new(expanded) }}

func takeExpanded() *expanded { return expansions.Get().(*expanded) }

// release gives the memory back.
func (x *expanded) release() {
	if x.whole = false; cap(x.p) <= maxKeptBuffer {
		expansions.Put(x)
	}
}

// loadContent is load with memory in x for a leaf that is compressed. nil: x gets some if it is needed.
func (s *Store) loadContent(k *chunkKey, x **expanded) ([]byte, error) {
	e, found, err := s.lookup(k)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, ErrMissing
	}
	return s.loadWith(k, &e, x)
}

// loadWith is loadEntry with memory as loadContent has it.
func (s *Store) loadWith(k *chunkKey, e *entry, x **expanded) ([]byte, error) {
	if e.stored == 0 {
		return s.loadEntry(k, e)
	}
	if *x == nil {
		*x = takeExpanded()
	}
	return s.loadCompressed(k, e, *x)
}

// loadCompressed gives the content of a compressed leaf, verified: that which x has, or what x has afterwards. That a
// leaf was verified before spares its hash, not its decompression.
func (s *Store) loadCompressed(k *chunkKey, e *entry, x *expanded) ([]byte, error) {
	if k.level > 0 {
		return nil, corruptf("node that is compressed")
	}
	if x.whole && x.addr == k.addr && len(x.p) == e.length {
		return x.p, nil
	}
	x.whole = false
	if frame := s.unsealed(e, false); frame != nil && s.expand(e, frame, x) == nil && s.verify(k, e, frame, x.p) {
		x.addr, x.whole = k.addr, true
		return x.p, nil
	}
	// Whatever is wrong with it, the page may tell more.
	frame, err := s.data(e)
	if err == nil {
		err = s.expand(e, frame, x)
	}
	if err != nil {
		return nil, err
	}
	if !s.verify(k, e, frame, x.p) {
		return nil, corruptf("chunk has the address %v", s.options.Algorithm.sum(x.p))
	}
	x.addr, x.whole = k.addr, true
	return x.p, nil
}

// expand decompresses a leaf to x.
func (s *Store) expand(e *entry, frame []byte, x *expanded) error {
	p, err := s.decompress(x.p, frame, e.length)
	if err == nil {
		x.p = p
	}
	return err
}

// content is data, decompressed.
func (s *Store) content(e *entry) ([]byte, error) {
	p, err := s.data(e)
	if err != nil || e.stored == 0 {
		return p, err
	}
	return s.decompress(nil, p, e.length)
}

// contentAt gives the content of v, the bytes at a place, in the memory of dst if they are compressed. What is not a frame
// where one should be is its own content, and ok is false.
func (s *Store) contentAt(at spot, v, dst []byte) (p []byte, ok bool) {
	if !s.isFrame(at.packed, at.id) {
		return v, true
	}
	if n, ok := s.contentLength(v); ok {
		if p, err := s.decompress(dst, v, n); err == nil {
			return p, true
		}
	}
	return v, false
}

// entryAt makes an entry that of v, the bytes at a place, which have n bytes of content.
func (s *Store) entryAt(e *entry, at spot, v []byte, n int) {
	e.packed, e.id, e.length, e.stored = at.packed, at.id, n, 0
	if s.isFrame(at.packed, at.id) {
		e.stored = len(v)
	}
}

// takeSpare gives the content of the leaf that ReadAt was in last, if no other goroutine has it now.
func (r *Reader) takeSpare() *expanded {
	if r.s.options.Compression == NoCompression {
		return nil
	}
	return r.spare.Swap(nil)
}

// giveSpare gives it back.
func (r *Reader) giveSpare(x **expanded) {
	if *x == nil {
		return
	}
	if other := r.spare.Swap(*x); other != nil {
		other.release()
	}
}

// finish gives back the memory of Read, which has come to the end.
func (r *Reader) finish() {
	if r.content != nil {
		r.content.release()
		r.content, r.leaf = nil, nil
	}
}

// compressGathered compresses those of the new chunks in the list that become shorter.
func (s *Store) compressGathered(b *batch, list []int32) {
	b.frames = b.frames[:0]
	for _, i := range list {
		p := &b.entries[i]
		if p.state&(hasBytes|appended|stored|unchanged) != hasBytes || !s.compresses(&p.key, int(p.length)) {
			continue
		}
		at := len(b.frames)
		b.frames = compress(b.frames, b.arena[p.at:p.at+p.length])
		if n := len(b.frames) - at; n > 0 {
			p.at, p.stored = int32(at), int32(n)
		}
	}
}

// maxEncoders is how many goroutines compress leaves of a blob, at most, beside the caller's.
const maxEncoders = 4

// toFrames gives the lane that compresses leaves.
func (h *hasher) toFrames() *lane {
	if h.frameLane == nil {
		h.frameLane = newLane(func(t *task) { *t.frame = encode((*t.frame)[:0], t.p) })
		h.frameLane.width = min(max(runtime.GOMAXPROCS(0)-1, 1), maxEncoders)
	}
	return h.frameLane
}

// storeFrame stores the oldest leaf in flight. It has those compressed meanwhile of which it is known
// that they are not in the store.
func (h *hasher) storeFrame(f *flight) error {
	s := h.w.s
	for ; h.hashed < h.inFlight; h.hashed++ {
		next := &h.ring[(h.first+h.hashed)%laneDepth]
		if next != f && !next.address.ready() {
			break
		}
		if next.err = h.addresses.helped(&next.address); next.err != nil {
			continue
		}
		if k := (chunkKey{addr: next.address.sum}); next.address.promises && s.isNew(&k, len(next.p)) {
			next.frame.frame = frames.Get().(*[]byte)
			h.frames.start(&next.frame, next.p)
		}
	}
	if err := firstError(f.err, h.frames.helped(&f.frame)); err != nil {
		return err
	}
	switch {
	case !f.address.promises:
		return h.w.store(f.address.sum, f.p, noFrame)
	case f.frame.frame == nil:
		return h.w.store(f.address.sum, f.p, nil)
	}
	return h.w.store(f.address.sum, f.p, *f.frame.frame)
}

// noFrame is that of a leaf that does not become shorter.
var noFrame = []byte{}

// frames are for leaves that are compressed and not stored yet.
var frames = sync.Pool{New: func() any { p := []byte{}; return &p }}

// releaseFrame gives the memory of a frame back.
func (t *task) releaseFrame() {
	if t.frame != nil && cap(*t.frame) <= maxKeptBuffer {
		frames.Put(t.frame)
	}
	t.frame = nil
}

// isNew tells whether a long leaf is to be compressed because the store does not have it. If that cannot be known,
// it is not: what stores it finds out why.
func (s *Store) isNew(k *chunkKey, length int) bool {
	if !s.compresses(k, length) || !s.isLong(k, length) || s.batch == nil || s.batch.find(k) != nil {
		return false
	}
	_, found, err := s.probe(k)
	return err == nil && !found
}
