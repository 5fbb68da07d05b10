package blob

type hasher struct{}

func (h *hasher) drop() {}

// ExpectDigest has Commit refuse a blob whose SHA-256 as a whole is another:
// ErrDigestMismatch. It implies Digest for this blob, and must be called before its first Write.
func (w *Writer) ExpectDigest(sum [32]byte) { w.expected.digest = &sum }

// Digest says whether the SHA-256 of whole blobs is computed beside
// the addresses of their chunks, by a goroutine of its own. It must be called before the
// first Write of a blob and holds for all that follow.
func (w *Writer) Digest(on bool) { w.digest = on }

// DigestSum is the SHA-256 of the whole blob that was committed last, if Digest or
// ExpectDigest was set for it.
func (w *Writer) DigestSum() (sum [32]byte, ok bool) { return w.sum, w.hasSum }

// Concurrent says whether a goroutine hashes leaves while the caller's goroutine stores
// the ones before. It must be called before the first Write of a blob and holds for all
// that follow.
func (w *Writer) Concurrent(on bool) { w.concurrent = on }

// room is where the next bytes may be read to.
func (w *Writer) room() []byte {
	if w.cut.cdc {
		if w.input == nil {
			w.input = make([]byte, inputSize)
		}
		return w.input
	}
	if cap(w.leaf) < w.cut.size {
		w.leaf = append(make([]byte, 0, w.cut.size), w.leaf...)
	}
	return w.leaf[len(w.leaf):w.cut.size]
}

// inputSize is how many bytes are read at once where they are to be cut by content.
const inputSize = 64 << 10

// took says that p was read into the room.
func (w *Writer) took(p []byte) error {
	if w.cut.cdc {
		return w.write(p)
	}
	if err := w.check(len(p)); err != nil {
		return err
	}
	w.size += int64(len(p))
	w.leaf = w.leaf[:len(w.leaf)+len(p)]
	if _, end := w.cut.cut(p); !end {
		return nil
	}
	err := w.add(w.leaf)
	w.leaf = w.leaf[:0]
	return err
}
