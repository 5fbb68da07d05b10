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
	// ZstdBetter is Zstd that looks longer for what repeats: source code takes 3 to 4% less, and half as long again to put.
	ZstdBetter Compression = 2
)

// String is the name of the way.
func (c Compression) String() string {
	switch c {
	case NoCompression:
		return "none"
	case Zstd:
		return "zstd"
	case ZstdBetter:
		return "zstd-better"
	}
	return fmt.Sprintf("compression %d", uint8(c))
}

// minCompressed is how many bytes a leaf has that is compressed, at least. What compressing saves of shorter ones is little next
// to their entries in the index.
const minCompressed = 512

// pays tells whether a chunk is stored compressed: reading it takes longer then.
func pays(length, compressed int) bool { return compressed <= length-length/8 }

// Encoders and decoders are for one goroutine each. One that has met a fault of the memory that it reads is not used again.
var (
	encoders = [...]sync.Pool{Zstd: encodersOf(zstd.SpeedDefault), ZstdBetter: encodersOf(zstd.SpeedBetterCompression)}
	decoders = sync.Pool{New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxChunk),
			zstd.WithDecoderMaxWindow(maxChunk), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
		if err != nil {
			panic(err)
		}
		return d
	}}
)

// encodersOf are encoders of a level. One of the default takes some 1.5 MiB, and twice its window more for leaves of more than 128 KiB; of the
// better one, some 5.5 MiB.
func encodersOf(level zstd.EncoderLevel) sync.Pool {
	return sync.Pool{New: func() any {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
			zstd.WithSingleSegment(true), zstd.WithAllLitEntropyCompression(true), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // of options that do not depend on anything
		}
		return e
	}}
}

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
func (c Compression) compress(dst, p []byte) []byte {
	if !promises(p) {
		return dst
	}
	return c.encode(dst, p)
}

// encode is compress of what promises to become shorter.
func (c Compression) encode(dst, p []byte) []byte {
	e := encoders[c].Get().(*zstd.Encoder)
	frame := e.EncodeAll(p, dst)
	encoders[c].Put(e)
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

// maxEncoders is how many goroutines make frames of leaves of a blob, at most, beside the caller's.
const maxEncoders = 4

// toFrames gives the lane that makes frames of leaves.
func (h *hasher) toFrames() *lane {
	if h.frameLane == nil {
		h.frameLane = newLane(func(t *task) { *t.frame = h.options.appendFrameOf((*t.frame)[:0], t.p, t.promises) })
		h.frameLane.width = min(max(runtime.GOMAXPROCS(0)-1, 1), maxEncoders)
	}
	return h.frameLane
}

// storeFrame stores the oldest leaf in flight. It has frames made meanwhile of those of which it is known
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
		if k := (chunkKey{addr: next.address.sum}); (next.address.promises || s.options.Key != nil) && s.isNew(&k, len(next.p)) {
			next.frame.frame, next.frame.promises = frames.Get().(*[]byte), next.address.promises
			h.frames.start(&next.frame, next.p)
		}
	}
	if err := firstError(f.err, h.frames.helped(&f.frame)); err != nil {
		return err
	}
	switch {
	case f.frame.frame != nil:
		return h.w.store(f.address.sum, f.p, *f.frame.frame)
	case s.options.Key == nil && !f.address.promises:
		return h.w.store(f.address.sum, f.p, noFrame)
	}
	return h.w.store(f.address.sum, f.p, nil)
}

// noFrame is that of a leaf that does not become shorter.
var noFrame = []byte{}

// releaseFrame gives the memory of a frame back.
func (t *task) releaseFrame() {
	if t.frame != nil {
		releaseFrame(t.frame)
	}
	t.frame = nil
}

// isNew tells whether a frame is to be made of a long leaf because the store does not have it. If that cannot be known,
// none is: what stores it finds out why.
func (s *Store) isNew(k *chunkKey, length int) bool {
	if !s.mayFrame(k, length) || !s.isLong(k, length) || s.batch == nil || s.batch.find(k) != nil {
		return false
	}
	_, found, err := s.probe(k)
	return err == nil && !found
}
