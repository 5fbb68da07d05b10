package blob

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
)

// Writer writes one blob after the other, each in pieces of any size: how it
// is cut into chunks depends on the content only. Commit ends a blob. A Writer is for
// one goroutine.
//
// An error of Write or ReadFrom gives up the blob: Commit returns it too, and nothing
// of the blob is stored. So does a transaction that ends before Commit.
type Writer struct {
	s          *Store
	next, prev *Writer // of the open ones

	begun bool
	err   error // the blob was given up
	size  int64
	cut   cutter
	tree  treeBuilder
	leaf  []byte // what came of a leaf that is not whole
	input []byte // of ReadFrom, where content says how it is cut

	concurrent bool
	digest     bool
	hashing    *hasher
	sum        [32]byte // the digest of the last blob
	hasSum     bool

	expected expectation
}

// expectation is what a blob must turn out to be.
type expectation struct {
	size   int64 // -1: any
	digest *[32]byte
	ref    Ref // zero: any

	nothing bool // what the zero Ref names
}

// Writer makes a Writer. It can be used again after Commit and Abort, and is
// best used for many blobs, for it keeps its buffers.
func (s *Store) Writer() *Writer {
	sh := s.options.shape()
	return &Writer{s: s, cut: newCutter(&s.options), tree: treeBuilder{s: s, shape: sh}, expected: expectation{size: -1}}
}

// Expect has the blob refused if it does not have size bytes: ErrSizeMismatch, by the
// first Write beyond and by Commit. It holds for the blob that is being written, or else the
// next. A negative size is any.
func (w *Writer) Expect(size int64) { w.expected.size, w.expected.nothing = size, false }

// ExpectRef has Commit refuse a blob that is not the one that r names: ErrSizeMismatch,
// ErrDigestMismatch. It holds as Expect does. No blob is the one that the zero Ref names: ErrInvalidRef.
func (w *Writer) ExpectRef(r Ref) {
	w.expected.ref = r
	w.expected.size = r.size
	w.expected.nothing = r.IsZero()
}

// Size is how many bytes of the blob were written.
func (w *Writer) Size() int64 { return w.size }

// start begins a blob unless one has begun, and gives the error of writing to it.
func (w *Writer) start() error {
	if w.err != nil {
		return w.err
	}
	if err := w.s.writable(); err != nil {
		return err
	}
	if w.begun {
		return nil
	}
	b, err := w.s.begin()
	if err != nil {
		return err
	}
	w.take(b)
	w.begun, w.hasSum = true, false
	if w.next = w.s.open; w.next != nil {
		w.next.prev = w
	}
	w.s.open = w
	return nil
}

// fail gives up the blob because of err, which it returns.
func (w *Writer) fail(err error) error {
	w.drop()
	w.err = err
	return err
}

// drop takes back what was stored of the blob.
func (w *Writer) drop() {
	w.tree.abort()
	w.end()
}

// end makes the writer ready for the next blob.
func (w *Writer) end() {
	if w.hashing != nil {
		w.hashing.drop()
	}
	w.cut.reset()
	w.size = 0
	w.expected = expectation{size: -1}
	if !w.begun {
		return
	}
	w.begun = false
	w.give(w.s.batch)
	if w.next != nil {
		w.next.prev = w.prev
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		w.s.open = w.next
	}
	w.next, w.prev = nil, nil
}

// workspace is the memory that a Writer has while a blob is being written. It is used
// again by the next blob, of this transaction or another.
type workspace struct {
	leaf, input []byte
	levels      []nodeBuilder
	hashing     *hasher
}

const (
	maxSpaces     = 4       // that are kept
	maxKeptBuffer = 1 << 20 // bytes of each of its buffers
)

func (w *Writer) take(b *batch) {
	n := len(b.spaces)
	if n == 0 {
		return
	}
	ws := b.spaces[n-1]
	b.spaces = b.spaces[:n-1]
	w.leaf, w.input, w.tree.levels, w.hashing = ws.leaf[:0], ws.input, ws.levels[:0], ws.hashing
	if w.hashing != nil {
		w.hashing.w = w
	}
}

func (w *Writer) give(b *batch) {
	if b != nil && len(b.spaces) < maxSpaces && cap(w.leaf) <= maxKeptBuffer {
		if w.hashing != nil {
			w.hashing.w = nil
		}
		b.spaces = append(b.spaces, workspace{w.leaf, w.input, w.tree.levels, w.hashing})
	}
	w.leaf, w.input, w.tree.levels, w.hashing = nil, nil, nil, nil
}

// check refuses n bytes more than a blob can have or was expected to have.
func (w *Writer) check(n int) error {
	switch limit := w.expected.size; {
	case w.expected.nothing:
		return fmt.Errorf("expecting the zero reference: %w", ErrInvalidRef)
	case int64(n) > math.MaxInt64-w.size:
		return errTooLarge
	case limit >= 0 && int64(n) > limit-w.size:
		return fmt.Errorf("%w: more than %d bytes", ErrSizeMismatch, limit)
	}
	return nil
}

// Write writes p to the blob. p is not kept.
func (w *Writer) Write(p []byte) (int, error) {
	if err := w.start(); err != nil {
		return 0, err
	}
	if err := w.write(p); err != nil {
		return 0, w.fail(fmt.Errorf("writing a blob: %w", err))
	}
	return len(p), nil
}

// minShared is how many leaves a blob has from which on two processors hash it faster than
// one: waking the other takes some microseconds.
const minShared = 4

// putAll writes the blob that has the bytes p, all of which stay as they are until it returns: so no
// leaf is copied, and all can be hashed at once.
func (w *Writer) putAll(p []byte) (Ref, error) {
	w.concurrent = len(p) >= minShared*w.s.options.LeafSize && runtime.GOMAXPROCS(0) > 1
	if err := w.start(); err != nil {
		return Ref{}, err
	}
	whole := false
	defer func() { // after a panic too: p may be mapped from a file that was shortened
		if !whole {
			w.drop()
		}
	}()
	w.size = int64(len(p))
	for len(p) > 0 {
		n, _ := w.cut.cut(p)
		if err := w.add(p[:n], true); err != nil {
			return Ref{}, err
		}
		p = p[n:]
	}
	ref, err := w.Commit()
	whole = true
	return ref, err
}

func (w *Writer) write(p []byte) error {
	if err := w.check(len(p)); err != nil {
		return err
	}
	w.size += int64(len(p))
	for len(p) > 0 {
		n, end := w.cut.cut(p)
		piece, lent := p[:n], true
		p = p[n:]
		if len(w.leaf) > 0 || !end {
			w.leaf = append(w.leaf, piece...)
			piece, lent = w.leaf, false
		}
		if !end {
			break
		}
		if err := w.add(piece, lent); err != nil {
			return err
		}
	}
	if w.hashing != nil {
		return w.hashing.settle()
	}
	return nil
}

// add adds a leaf, either p that is lent by the caller or w.leaf.
func (w *Writer) add(p []byte, lent bool) error {
	if h := w.hasher(); h != nil {
		return h.push(p, lent)
	}
	if !lent {
		w.leaf = w.leaf[:0]
	}
	return w.store(w.s.options.sum(p), p, nil)
}

// store stores a leaf whose address is known, and its frame if that was made; see Store.add.
func (w *Writer) store(addr Address, p, frame []byte) error {
	k := chunkKey{addr: addr}
	if _, err := w.s.add(&k, p, frame, asParent); err != nil {
		return err
	}
	return w.tree.push(k, int64(len(p)))
}

// maxEmptyReads is after how many reads of nothing a reader is taken to give nothing ever.
const maxEmptyReads = 100

// ReadFrom writes all that r gives until io.EOF. Any other error of r gives the blob
// up, io.ErrUnexpectedEOF and temporary ones too: it is not known what is missing.
// A reader that gives neither bytes nor an error many times in a row is
// io.ErrNoProgress.
func (w *Writer) ReadFrom(r io.Reader) (int64, error) {
	if err := w.start(); err != nil {
		return 0, err
	}
	before := w.size
	if err := w.readFrom(r); err != nil {
		return 0, w.fail(fmt.Errorf("writing a blob: %w", err))
	}
	return w.size - before, nil
}

var errReadCount = errors.New("reader returned an impossible count")

func (w *Writer) readFrom(r io.Reader) error {
	for empty := 0; ; {
		room := w.room()
		n, err := r.Read(room)
		if n < 0 || n > len(room) {
			return errReadCount
		}
		if n > 0 {
			empty = 0
			if err := w.took(room[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case n == 0:
			if empty++; empty == maxEmptyReads {
				return io.ErrNoProgress
			}
		}
	}
}

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
	return w.add(w.leaf, false)
}

// Commit ends the blob and counts one use of it. Where nothing was written that is the empty blob. If it
// returns an error the blob is given up. The blob is in the file when the transaction has committed.
func (w *Writer) Commit() (Ref, error) {
	err := w.start()
	var ref Ref
	if err == nil {
		if ref, err = w.commit(); err == nil {
			w.end()
			return ref, nil
		}
		err = w.fail(fmt.Errorf("finishing a blob: %w", err))
	}
	w.err = nil // the next blob is another
	w.end()
	return Ref{}, err
}

func (w *Writer) commit() (Ref, error) {
	if err := w.check(0); err != nil {
		return Ref{}, err
	}
	if w.expected.size >= 0 && w.size != w.expected.size {
		return Ref{}, fmt.Errorf("%w: %d bytes, not %d", ErrSizeMismatch, w.size, w.expected.size)
	}
	if err := w.lastLeaf(); err != nil {
		return Ref{}, err
	}
	k, size, err := w.tree.finish()
	if err != nil {
		return Ref{}, err
	}
	ref := Ref{algorithm: w.s.options.Algorithm, addr: k.addr, level: k.level, size: size}
	if err := w.verify(ref); err != nil {
		if adjusting := w.s.adjust(&k, -1, 0); adjusting != nil {
			return Ref{}, adjusting
		}
		return Ref{}, err
	}
	if err := w.s.adjust(&k, -1, 1); err != nil {
		return Ref{}, err
	}
	if w.hasSum {
		if err := w.s.setDigest(w.sum, ref); err != nil {
			return Ref{}, w.s.fail(err)
		}
	}
	return ref, nil
}

// lastLeaf adds what is left, so that all leaves are stored and the digest is known.
func (w *Writer) lastLeaf() error {
	switch {
	case int64(len(w.leaf)) == w.size:
		return w.only(w.leaf)
	case len(w.leaf) > 0:
		if err := w.add(w.leaf, false); err != nil {
			return err
		}
	}
	if h := w.hasher(); h != nil {
		if err := h.drain(); err != nil {
			return err
		}
		h.sumUp()
	}
	return nil
}

// verify compares a blob with what was expected of it.
func (w *Writer) verify(ref Ref) error {
	if want := w.expected.ref; !want.IsZero() && (want.Address() != ref.addr || want.level != ref.level || want.algorithm != ref.algorithm) {
		return fmt.Errorf("%w: %v, not %v", ErrDigestMismatch, ref, want)
	}
	if want := w.expected.digest; want != nil && *want != w.sum {
		return fmt.Errorf("%w: sha256:%x, not sha256:%x", ErrDigestMismatch, w.sum, *want)
	}
	return nil
}

// Abort gives up the blob. What of it is not used otherwise is not stored.
// Without a blob begun it does nothing.
func (w *Writer) Abort() {
	w.err = nil
	w.drop()
}
