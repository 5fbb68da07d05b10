package blob

import "sync"

// A frame is what stands for a leaf in a store with compression or encryption, in the bucket of short chunks, under an odd id; what
// stands there as it is has an even id. So what bytes mean can be known without an entry of the index, and a repair can find
// out whose they are: the content of a leaf may be a frame, too.
//
// Without encryption it is a frame of Zstandard (RFC 8878) that says how long its content is. With it, it is a byte that says
// what was sealed, the content or such a frame of it, and what the key's Cipher has made of that, with that byte as
// additional data. In an encrypted store all leaves are frames. The address is not bound to the frame: it is a keyed hash
// of the content, with which that is compared when it is read, as everywhere; and a repair needs to open
// frames of which no entry tells whose they are.

// What is sealed in a frame.
const (
	sealedPlain = 0
	sealedZstd  = 1
)

// leafLabels are what is authenticated along with it.
var leafLabels = [...][]byte{sealedPlain: []byte("leaf\x00\x00"), sealedZstd: []byte("leaf\x00\x01")}

// hasFrames tells whether leaves of the store can be frames.
func (o *Options) hasFrames() bool { return o.Compression != NoCompression || o.Key != nil }

// isFrame tells whether bytes are a frame, in a store with frames.
func isFrame(isPacked bool, id uint64) bool { return isPacked && id%2 == 1 }

func (s *Store) isFrame(isPacked bool, id uint64) bool {
	return s.options.hasFrames() && isFrame(isPacked, id)
}

// compresses tells whether a chunk is compressed if that pays.
func (s *Store) compresses(k *chunkKey, length int) bool {
	return k.level == 0 && s.options.compresses(length)
}

func (o *Options) compresses(length int) bool {
	return o.Compression != NoCompression && length >= minCompressed
}

// mayFrame tells whether a chunk is a frame in the store, or may be.
func (s *Store) mayFrame(k *chunkKey, length int) bool {
	return k.level == 0 && s.options.Key != nil || s.compresses(k, length)
}

// appendFrame appends the frame of a leaf to dst; nothing if the leaf is to be stored as it is.
func (o *Options) appendFrame(dst, p []byte) []byte {
	if o.Key == nil {
		return o.Compression.compress(dst, p)
	}
	return o.appendFrameOf(dst, p, o.compresses(len(p)) && promises(p))
}

// appendFrameOf is appendFrame where it is known whether the leaf promises to become shorter.
func (o *Options) appendFrameOf(dst, p []byte, promises bool) []byte {
	switch {
	case o.Key != nil && promises:
		frame := frames.Get().(*[]byte)
		defer releaseFrame(frame)
		if *frame = o.Compression.encode((*frame)[:0], p); len(*frame) > 0 {
			return o.Key.sealLeaf(dst, sealedZstd, *frame)
		}
		return o.Key.sealLeaf(dst, sealedPlain, p)
	case o.Key != nil:
		return o.Key.sealLeaf(dst, sealedPlain, p)
	case promises:
		return o.Compression.encode(dst, p)
	}
	return dst
}

func (k *Key) sealLeaf(dst []byte, kind byte, p []byte) []byte {
	return k.cipher.Seal(append(dst, kind), p, leafLabels[kind])
}

// frames are memory of leaves that are framed and not stored yet.
var frames = sync.Pool{New: func() any { p := []byte{}; return &p }}

func releaseFrame(frame *[]byte) {
	if cap(*frame) <= maxKeptBuffer {
		frames.Put(frame)
	}
}

// unsaid is the length of content that only the opening of a frame tells.
const unsaid = -2

// frameLength is how long the content of a frame is, as it says itself; false if it is none, or no leaf of the store is so long.
func (s *Store) frameLength(v []byte) (int, bool) {
	key := s.options.Key
	switch {
	case key == nil:
		return s.contentLength(v)
	case len(v) < 1+key.overhead || v[0] > sealedZstd || v[0] == sealedZstd && s.options.Compression == NoCompression:
		return 0, false
	case v[0] == sealedZstd:
		return unsaid, true
	}
	n := len(v) - 1 - key.overhead
	return n, int64(n) <= s.options.shape().maxLeaf()
}

// unframe gives the content of a frame, n bytes or, if n is negative, as many as it has, in the memory of dst if that is enough.
func (s *Store) unframe(dst, v []byte, n int) ([]byte, error) {
	key := s.options.Key
	if key == nil && n >= 0 {
		return s.decompress(dst, v, n)
	}
	said, ok := s.frameLength(v)
	switch {
	case !ok, n >= 0 && said >= 0 && said != n:
		return nil, corruptf("frame of %d bytes: it is not that of a leaf of %d bytes", len(v), n)
	case key == nil:
		return s.decompress(dst, v, said)
	case said == unsaid:
		return s.openCompressed(dst, v, n)
	}
	p, err := key.cipher.Open(room(dst, said), v[1:], leafLabels[sealedPlain])
	if err != nil {
		return nil, corruptf("frame of %d bytes cannot be opened: %v", len(v), err)
	}
	if len(p) != said {
		return nil, corruptf("frame of %d bytes: %d bytes of content, not %d", len(v), len(p), said)
	}
	return p, nil
}

func (s *Store) openCompressed(dst, v []byte, n int) ([]byte, error) {
	frame := frames.Get().(*[]byte)
	defer releaseFrame(frame)
	*frame = room(*frame, len(v))
	p, err := s.options.Key.cipher.Open(*frame, v[1:], leafLabels[sealedZstd])
	if err != nil {
		return nil, corruptf("frame of %d bytes cannot be opened: %v", len(v), err)
	}
	if n < 0 {
		var ok bool
		if n, ok = s.contentLength(p); !ok {
			return nil, corruptf("frame of %d bytes: what is sealed in it is not compressed", len(v))
		}
	}
	return s.decompress(dst, p, n)
}

// room is memory for n bytes, that of dst if it is enough; not nil.
func room(dst []byte, n int) []byte {
	if dst == nil || cap(dst) < n {
		return make([]byte, 0, n)
	}
	return dst[:0]
}

// expanded is the content of a frame in memory.
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

// loadContent is load with memory in x for a leaf that is a frame. nil: x gets some if it is needed.
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
	return s.loadFrame(k, e, *x)
}

// loadFrame gives the content of a frame, verified: that which x has, or what x has afterwards. That a
// leaf was verified before spares its hash, not its decompression, nor its decryption.
func (s *Store) loadFrame(k *chunkKey, e *entry, x *expanded) ([]byte, error) {
	if k.level > 0 {
		return nil, corruptf("node that is a frame")
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
		return nil, corruptf("chunk has the address %v", s.options.sum(x.p))
	}
	x.addr, x.whole = k.addr, true
	return x.p, nil
}

// expand has x have the content of a frame.
func (s *Store) expand(e *entry, frame []byte, x *expanded) error {
	p, err := s.unframe(x.p, frame, e.length)
	if err == nil {
		x.p = p
	}
	return err
}

// content is data, without its frame.
func (s *Store) content(e *entry) ([]byte, error) {
	p, err := s.data(e)
	if err != nil || e.stored == 0 {
		return p, err
	}
	return s.unframe(nil, p, e.length)
}

// contentAt gives the content of v, the bytes at a place, in the memory of dst if they are a frame. What is not a frame
// where one should be is its own content, and ok is false.
func (s *Store) contentAt(at spot, v, dst []byte) (p []byte, ok bool) {
	if !s.isFrame(at.packed, at.id) {
		return v, true
	}
	if p, err := s.unframe(dst, v, -1); err == nil {
		return p, true
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
	if !r.s.options.hasFrames() {
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

// frameGathered makes the frames of the new chunks in the list.
func (s *Store) frameGathered(b *batch, list []int32) {
	b.frames = b.frames[:0]
	for _, i := range list {
		p := &b.entries[i]
		if p.state&(hasBytes|appended|stored|unchanged) != hasBytes || !s.mayFrame(&p.key, int(p.length)) {
			continue
		}
		at := len(b.frames)
		b.frames = s.options.appendFrame(b.frames, b.arena[p.at:p.at+p.length])
		if n := len(b.frames) - at; n > 0 {
			p.at, p.stored = int32(at), int32(n)
		}
	}
}
