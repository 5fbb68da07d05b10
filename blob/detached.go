package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"

	"holdfast"
)

// DetachedReader reads a blob of the newest committed state in transactions of its own, one for each MiB: between calls, and while
// WriteTo waits for its writer, it has none open and keeps no page from being used again. So it may be kept for as long as
// one likes, as by a server for a slow client. It is an io.Reader, io.ReaderAt, io.Seeker, io.WriterTo and io.Closer. ReadAt and
// Close may be called by several goroutines at once; Read, Seek and WriteTo are for one.
//
// The blob is found by its content each time, wherever it lies by then. If it was removed meanwhile, the error wraps ErrNotFound,
// or ErrMissing if it was removed in part; what was read before is right. A lease keeps a blob from being removed.
type DetachedReader struct {
	ctx     context.Context
	db      *holdfast.DB
	open    func(*holdfast.Tx) (*Store, error)
	ref     Ref
	section *io.SectionReader // of itself, for Read and Seek
	order   sequence
	closed  atomic.Bool
}

// OpenReader opens the blob that ref names, in the store that open opens, for reading beyond transactions. Once ctx is
// done, calls on the reader return its error, those in progress after a MiB at most. Errors are those of Store.Reader and of open.
func OpenReader(ctx context.Context, db *holdfast.DB, open func(*holdfast.Tx) (*Store, error), ref Ref) (*DetachedReader, error) {
	d := &DetachedReader{ctx: ctx, db: db, open: open, ref: ref}
	d.section = io.NewSectionReader(d, 0, ref.size)
	if err := d.view(func(*Reader) error { return nil }); err != nil {
		return nil, fmt.Errorf("opening blob %v: %w", ref, err)
	}
	return d, nil
}

const (
	detachedPiece  = 1 << 20   // bytes read in a transaction at most
	detachedBuffer = 256 << 10 // of WriteTo
)

// view calls read with a Reader in a transaction.
func (d *DetachedReader) view(read func(*Reader) error) error {
	if d.closed.Load() {
		return fs.ErrClosed
	}
	if err := d.ctx.Err(); err != nil {
		return err
	}
	return d.db.View(func(tx *holdfast.Tx) error {
		s, err := d.open(tx)
		if err != nil {
			return err
		}
		r, err := s.reader(d.ref, &d.order)
		if err != nil {
			return err
		}
		return read(r)
	})
}

// piece reads all of p, which does not end after the blob, in a transaction.
func (d *DetachedReader) piece(p []byte, offset int64) (n int, err error) {
	var failed error
	err = d.view(func(r *Reader) error {
		n, failed = r.ReadAt(p, offset)
		return failed
	})
	if err != nil && (failed == nil || !errors.Is(err, failed)) {
		n = 0 // the transaction failed: what it has read may not be so
	}
	if err != nil {
		err = fmt.Errorf("reading blob %v at offset %d: %w", d.ref, offset+int64(n), err)
	}
	return n, err
}

// ReadAt reads len(p) bytes from offset on; io.EOF if the blob has fewer.
func (d *DetachedReader) ReadAt(p []byte, offset int64) (n int, err error) {
	if offset < 0 {
		return 0, errOffset
	}
	left := max(d.ref.size-offset, 0)
	short := int64(len(p)) > left
	if short {
		p = p[:left]
	}
	for err == nil && n < len(p) {
		var m int
		m, err = d.piece(p[n:min(n+detachedPiece, len(p))], offset+int64(n))
		n += m
	}
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// Read reads from where the last Read or Seek ended.
func (d *DetachedReader) Read(p []byte) (int, error) {
	if d.closed.Load() { // also at the end
		return 0, fs.ErrClosed
	}
	return d.section.Read(p)
}

// Seek sets where Read and WriteTo go on; past the end is allowed.
func (d *DetachedReader) Seek(offset int64, whence int) (int64, error) {
	return d.section.Seek(offset, whence)
}

// WriteTo writes the rest of the blob to w.
func (d *DetachedReader) WriteTo(w io.Writer) (int64, error) {
	type plain struct{ io.Writer } // without a ReadFrom, which would take smaller pieces
	return io.CopyBuffer(plain{w}, d.section, make([]byte, max(min(detachedBuffer, d.ref.size), 1)))
}

// Close has all further calls fail with fs.ErrClosed. It does not end one in progress. It never fails.
func (d *DetachedReader) Close() error {
	d.closed.Store(true)
	return nil
}

// Size is the size of the blob in bytes.
func (d *DetachedReader) Size() int64 { return d.ref.size }

// Ref is the reference that the reader was opened with.
func (d *DetachedReader) Ref() Ref { return d.ref }
