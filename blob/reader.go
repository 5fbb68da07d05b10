package blob

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"

	"holdfast"
)

// Reader reads a blob. Each chunk is verified against its address when it is first read since
// the database was opened, or since its bytes were written; in a transaction that writes, and
// on the database of another process (holdfast.OpenShared), in this Store. A mismatch is a
// *CorruptError, and nothing of the chunk is handed out. ReadAt may be called by several goroutines at once in a
// reading transaction; Read, Seek and WriteTo are for one.
type Reader struct {
	s      *Store
	ref    Ref
	offset int64 // of Read
	nodes  nodeCache
	order  *sequence

	content *expanded                // of the compressed leaf in which Read is
	spare   atomic.Pointer[expanded] // of the one that ReadAt was in last

	// The leaf that Read is in, in a reading transaction, and the node above it.
	leaf      []byte
	leafBegin int64
	above     nodeAt
}

// nodeAt is a node, and where in the blob it begins.
type nodeAt struct {
	node
	begin int64
}

func (t *nodeAt) holds(offset int64) bool {
	return t.level > 0 && offset >= t.begin && offset-t.begin < t.size
}

// child is the child that holds the byte at offset, which is below the node, and where it begins.
func (t *nodeAt) child(offset int64) (k chunkKey, size, begin int64) {
	i, at := t.find(offset - t.begin)
	k, size = t.node.child(i)
	return k, size, t.begin + at
}

// Reader opens the blob that ref names. It is ErrNotFound if the store has no such
// blob, ErrAlgorithm if ref is of another hash function, ErrInvalidRef if the
// address leads to a blob of another size.
func (s *Store) Reader(ref Ref) (*Reader, error) {
	r, err := s.reader(ref, new(sequence))
	if err != nil {
		return nil, fmt.Errorf("opening blob %v: %w", ref, err)
	}
	return r, nil
}

// reader is Reader with what is known of the order in which the blob is read.
func (s *Store) reader(ref Ref, order *sequence) (*Reader, error) {
	r := &Reader{s: s, ref: ref, order: order}
	if err := r.check(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Reader) check() error {
	s, ref := r.s, r.ref
	switch {
	case ref.IsZero():
		return ErrInvalidRef
	case ref.inlined:
		return nil
	case ref.algorithm != s.options.Algorithm:
		return ErrAlgorithm
	}
	k := ref.key()
	e, found, err := s.lookup(&k)
	switch {
	case err != nil:
		return err
	case !found:
		return ErrNotFound
	case ref.level == 0 && int64(e.length) != ref.size:
		return fmt.Errorf("%w: it has %d bytes, not %d", ErrInvalidRef, e.length, ref.size)
	case ref.level == 0:
		return nil
	}
	p, err := s.loadEntry(&k, &e)
	if err != nil {
		return r.corrupt(&k, 0, err)
	}
	n, err := parseNode(p, ref.level, s.options.shape())
	if err != nil {
		return r.corrupt(&k, 0, err)
	}
	if n.size != ref.size {
		return fmt.Errorf("%w: it has %d bytes, not %d", ErrInvalidRef, n.size, ref.size)
	}
	r.remember(&k, &n)
	return nil
}

// corrupt says where damage was met. That a transaction has ended is none.
func (r *Reader) corrupt(k *chunkKey, offset int64, err error) error {
	if errors.Is(err, holdfast.ErrTxClosed) {
		return err
	}
	return &CorruptError{Ref: r.ref, Offset: offset, Chunk: k.addr, Level: k.level, Reason: err}
}

// Size is the size of the blob in bytes.
func (r *Reader) Size() int64 { return r.ref.size }

// Address is the address of the blob.
func (r *Reader) Address() Address { return r.ref.Address() }

// Ref is the reference that the reader was opened with.
func (r *Reader) Ref() Ref { return r.ref }

// find gives the leaf with the byte at offset, which is below the size, verified, and where
// in the blob it begins. above is where to look first, and becomes the node above the leaf; x is where the content of a
// compressed one is, or comes to.
func (r *Reader) find(offset int64, above *nodeAt, x **expanded) (leaf []byte, begin int64, err error) {
	if r.ref.inlined {
		return r.ref.value(), 0, nil
	}
	k, size := r.ref.key(), r.ref.size
	if above.holds(offset) {
		k, size, begin = above.child(offset)
	}
	for k.level > 0 {
		n, err := r.node(&k)
		if err == nil && n.size != size {
			err = corruptf("node of %d bytes where one of %d should be", n.size, size)
		}
		if err != nil {
			return nil, 0, r.corrupt(&k, begin, err)
		}
		*above = nodeAt{n, begin}
		k, size, begin = above.child(offset)
	}
	leaf, err = r.leafOf(&k, size, r.ref.size-begin-size, x)
	if err == nil && int64(len(leaf)) != size {
		err = corruptf("leaf of %d bytes where one of %d should be", len(leaf), size)
	}
	if err != nil {
		return nil, 0, r.corrupt(&k, begin, err)
	}
	return leaf, begin, nil
}

// node gives a node of the tree, verified.
func (r *Reader) node(k *chunkKey) (node, error) {
	// In a writing transaction a chunk may be removed while the reader is in use.
	if !r.s.tx.Writable() {
		if n, ok := r.nodes.get(k); ok {
			return n, r.s.ended()
		}
	}
	p, err := r.s.load(k)
	if err != nil {
		return node{}, err
	}
	n, err := parseNode(p, k.level, r.s.options.shape())
	if err == nil {
		r.remember(k, &n)
	}
	return n, err
}

func (r *Reader) remember(k *chunkKey, n *node) {
	if !r.s.tx.Writable() {
		r.nodes.put(k, n, r.ref.size/(fixedFanout*int64(r.s.options.LeafSize)))
	}
}

var (
	errOffset = errors.New("blob: negative offset")
	errWhence = errors.New("blob: invalid whence")
)

// ReadAt reads len(p) bytes from offset on; io.EOF if the blob has fewer.
func (r *Reader) ReadAt(p []byte, offset int64) (n int, err error) {
	if offset < 0 {
		return 0, errOffset
	}
	var above nodeAt
	x := r.takeSpare()
	defer r.giveSpare(&x)
	for offset < r.ref.size && n < len(p) {
		leaf, begin, err := r.find(offset, &above, &x)
		if err != nil {
			return n, err
		}
		m := copy(p[n:], leaf[offset-begin:])
		n += m
		offset += int64(m)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// next gives the rest of the leaf in which Read is.
func (r *Reader) next() ([]byte, error) {
	if at := r.offset - r.leafBegin; r.leaf != nil && at >= 0 && at < int64(len(r.leaf)) {
		return r.leaf[at:], r.s.ended()
	}
	if r.s.tx.Writable() { // a chunk may be removed while the reader is in use
		r.above = nodeAt{}
	}
	r.leaf = nil // its memory may be that of the next one
	leaf, begin, err := r.find(r.offset, &r.above, &r.content)
	if err != nil {
		return nil, err
	}
	if !r.s.tx.Writable() {
		r.leaf, r.leafBegin = leaf, begin
	}
	return leaf[r.offset-begin:], nil
}

// Read reads from where the last Read or Seek ended, at most to the end of a leaf.
func (r *Reader) Read(p []byte) (int, error) {
	if r.offset >= r.ref.size {
		r.finish()
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	leaf, err := r.next()
	if err != nil {
		return 0, err
	}
	n := copy(p, leaf)
	r.offset += int64(n)
	return n, nil
}

// Seek sets where Read and WriteTo go on; past the end is allowed.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += r.offset
	case io.SeekEnd:
		offset += r.ref.size
	default:
		return 0, errWhence
	}
	if offset < 0 {
		return 0, errOffset
	}
	r.offset = offset
	return offset, nil
}

// WriteTo writes the rest of the blob to w, leaf by leaf, without copying. w must not change
// or keep what it is given.
func (r *Reader) WriteTo(w io.Writer) (written int64, err error) {
	for r.offset < r.ref.size {
		leaf, err := r.next()
		if err != nil {
			return written, err
		}
		n, err := w.Write(leaf)
		if n < 0 || n > len(leaf) {
			return written, errWriteCount
		}
		written += int64(n)
		r.offset += int64(n)
		if errors.Is(err, syscall.EFAULT) && !inMemory(leaf) {
			err = holdfast.ErrUnreadable // not the writer's fault
		}
		if err != nil {
			return written, err
		}
		if n < len(leaf) {
			return written, io.ErrShortWrite
		}
	}
	r.finish()
	return written, nil
}

// inMemory tells whether the memory of a leaf can be read: the file that is mapped there may have been
// shortened since the leaf was verified.
func inMemory(leaf []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { ok = recover() == nil }()
	sum := byte(0)
	for _, b := range leaf {
		sum += b
	}
	runtime.KeepAlive(sum)
	return true
}

var errWriteCount = errors.New("writer returned an impossible count")
