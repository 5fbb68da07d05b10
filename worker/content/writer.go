package content

import (
	"context"
	"crypto/sha256"
	"encoding"
	"errors"
	"fmt"
	"hash"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"holdfast"
	"holdfast/blob"
)

// A Writer writes content under a ref. It is safe for concurrent use, which serves those who end it while it writes.
//
// What was written is in memory first, at most some MiB, and saved in the background when there is enough of it: while a piece
// is being saved the next one is gathered. Close saves the rest.
type Writer struct {
	s   *Store
	ref string

	mu     sync.Mutex
	ended  bool          // closed, committed or aborted
	record ingestRecord  // of all that was written, but for the hash
	hash   hash.Hash     // of that
	buffer []byte        // the end of it, which is not saved
	saved  int64         // bytes that are, or are being saved
	stored bool          // the file has a record of the ref, or it was tried
	saving chan struct{} // closed when a save ends; nil: there is none
	failed error         // of a save
}

// spares are buffers that were saved. No writer keeps one: thousands can wait for their clients.
var spares = sync.Pool{New: func() any { return new([]byte) }}

// Writer begins to write content, or goes on with what was written under that ref. ErrExists if what is expected is there,
// ErrBusy if the ref has a writer, ErrInvalid if it was begun with other expectations. The caller closes it.
func (s *Store) Writer(ctx context.Context, ref string, e Expected) (*Writer, error) {
	w, err := s.writer(ctx, ref, e)
	if err != nil {
		return nil, fmt.Errorf("write %.200q: %w", ref, err)
	}
	return w, nil
}

func (s *Store) writer(ctx context.Context, ref string, e Expected) (_ *Writer, err error) {
	if err := checkRef(ref); err != nil {
		return nil, err
	}
	if e.Size < 0 {
		return nil, fmt.Errorf("%w: a size of %d bytes", ErrInvalid, e.Size)
	}
	if e.Digest != "" {
		if _, err := s.Info(ctx, e.Digest); err == nil {
			return nil, fmt.Errorf("content %s: %w", e.Digest, ErrExists)
		} else if !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCorrupt) { // which Commit replaces
			return nil, err
		}
	}
	now := time.Now().UTC()
	w := &Writer{s: s, ref: ref, hash: sha256.New(), record: ingestRecord{Started: now, Updated: now}}
	w.mu.Lock() // until it is known what was written before
	defer w.mu.Unlock()
	if err := s.enter(w, maxWriters); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.ended = true
			s.leave(w)
		}
	}()
	if err := w.load(ctx); err != nil {
		return nil, err
	}
	r := &w.record
	if e.Size > 0 && r.Total > 0 && e.Size != r.Total || e.Digest != "" && r.Want != "" && string(e.Digest) != r.Want {
		return nil, fmt.Errorf("%w: it was begun for %d bytes with digest %q, not %d with %q: abort it first", ErrInvalid, r.Total, r.Want, e.Size, e.Digest)
	}
	if e.Size > 0 {
		r.Total = e.Size
	}
	if e.Digest != "" {
		r.Want = string(e.Digest)
	}
	return w, nil
}

// enter makes w the writer of its ref, unless there are so many writers.
func (s *Store) enter(w *Writer, most int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.writers[w.ref] != nil:
		return ErrBusy
	case len(s.writers) >= most:
		return fmt.Errorf("%w: there are %d writers", ErrBusy, most)
	}
	s.writers[w.ref] = w
	return nil
}

// leave frees the ref of w.
func (s *Store) leave(w *Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writers[w.ref] == w {
		delete(s.writers, w.ref)
	}
}

// full is how many bytes a writer gathers before it saves them.
func (s *Store) full() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(maxBuffer, max(minBuffer, buffers/2/max(1, len(s.writers))))
}

// load finds what was written before. The caller holds the lock, as those of all methods with lower-case names do.
func (w *Writer) load(ctx context.Context) error {
	return w.s.view(ctx, func(tx *holdfast.Tx) error {
		v := tx.Bucket(bucketIngests).Get([]byte(w.ref))
		if v == nil {
			return nil
		}
		r, err := parseIngest([]byte(w.ref), v)
		if err != nil {
			return err
		}
		if err := w.hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(r.Hash); err != nil {
			return corruptf("ref %q: %v", w.ref, err)
		}
		r.Hash = nil
		w.record, w.saved, w.stored = r, r.Size, true
		return nil
	})
}

// Write writes p after what was written. p is not kept. An error gives up what was written since the last save: Close, and go on
// with a new Writer at its offset.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return 0, err
	}
	_, _ = w.hash.Write(p) // never fails
	if w.buffer == nil {
		w.buffer = (*spares.Get().(*[]byte))[:0]
	}
	w.buffer = append(w.buffer, p...)
	w.record.Size += int64(len(p))
	w.record.Updated = time.Now().UTC()
	if len(w.buffer) >= w.s.full() {
		if err := w.save(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// usable is the error of a writer that has ended, or failed.
func (w *Writer) usable() error {
	switch {
	case w.ended:
		return fmt.Errorf("write %.200q: %w", w.ref, ErrClosed)
	case w.failed != nil:
		return fmt.Errorf("write %.200q: saving what was written: %w", w.ref, w.failed)
	}
	return nil
}

// wait returns when nothing is being saved.
func (w *Writer) wait() error {
	for w.saving != nil {
		saving := w.saving
		w.mu.Unlock()
		<-saving
		w.mu.Lock()
	}
	return w.failed
}

// save begins to save what is in memory, when the last save has ended.
func (w *Writer) save() error {
	if err := w.wait(); err != nil {
		return w.usable()
	}
	if w.ended { // meanwhile
		return w.usable()
	}
	r, err := w.stamped()
	if err != nil {
		return err
	}
	data, from := w.buffer, w.saved
	w.buffer, w.saved, w.stored = nil, w.record.Size, true
	done := make(chan struct{})
	w.saving = done
	go func() {
		err := w.s.update(context.Background(), func(tx *holdfast.Tx) error { return put(tx, w.ref, &r, data, from) })
		w.mu.Lock()
		defer w.mu.Unlock()
		w.saving, w.failed = nil, err
		if cap(data) <= 2*maxBuffer {
			spares.Put(&data)
		}
		close(done)
	}()
	return nil
}

// stamped is the record with the state of the hash.
func (w *Writer) stamped() (r ingestRecord, err error) {
	r = w.record
	r.Hash, err = w.hash.(encoding.BinaryMarshaler).MarshalBinary()
	return r, err
}

// put writes what follows the first bytes of an ingest, with its record.
func put(tx *holdfast.Tx, ref string, r *ingestRecord, data []byte, from int64) error {
	if len(data) > 0 {
		in, err := ingest(tx, ref, from)
		if err != nil {
			return err
		}
		if _, err := in.Write(data); err != nil {
			return err
		}
		if err := in.Save(); err != nil {
			return err
		}
	}
	return putIngest(tx, ref, r)
}

// ingest is that of a ref, of which so many bytes were written.
func ingest(tx *holdfast.Tx, ref string, offset int64) (*blob.Ingest, error) {
	b, err := blobs(tx)
	if err != nil {
		return nil, err
	}
	in, err := b.Ingest(ingestName(ref), blob.IngestOptions{})
	if err == nil && in.Offset() != offset {
		err = corruptf("ref %q: %d bytes were written, and %d are there", ref, offset, in.Offset())
	}
	return in, err
}

// Status is how far it is.
func (w *Writer) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.record.status(w.ref)
}

// Digest is the SHA-256 of what was written so far.
func (w *Writer) Digest() digest.Digest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.digest()
}

func (w *Writer) digest() digest.Digest {
	return digest.NewDigestFromBytes(digest.SHA256, w.hash.Sum(nil))
}

// Truncate begins anew. size must be 0.
func (w *Writer) Truncate(ctx context.Context, size int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if size != 0 {
		return fmt.Errorf("write %.200q: %w: content cannot be cut off at %d", w.ref, ErrOffset, size)
	}
	_ = w.wait() // what failed is given up
	if w.ended {
		return w.usable()
	}
	if w.stored {
		if err := w.s.drop(ctx, w.ref); err != nil {
			return err
		}
	}
	w.hash.Reset()
	w.buffer, w.saved, w.stored, w.failed = nil, 0, false, nil
	w.record.Size, w.record.Updated = 0, time.Now().UTC()
	return nil
}

// Commit makes what was written content with these labels, and ends the Writer. ErrMismatch if it does not have that size, or
// that digest; 0 and "" are what the Writer was begun with, or any. ErrExists, which gives up what was written, if there is
// such content already. What has a damaged record is replaced. After other errors it can be tried again.
func (w *Writer) Commit(ctx context.Context, size int64, expected digest.Digest, labels map[string]string) (info Info, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	info, err = w.commit(ctx, size, expected, labels)
	if err == nil || errors.Is(err, ErrExists) {
		w.ended = true
		w.buffer = nil
		w.s.leave(w)
	}
	return info, err
}

func (w *Writer) commit(ctx context.Context, size int64, expected digest.Digest, labels map[string]string) (info Info, err error) {
	_ = w.wait()
	if err := w.usable(); err != nil {
		return Info{}, err
	}
	if err := checkLabels(labels); err != nil {
		return Info{}, err
	}
	if size == 0 {
		size = w.record.Total
	}
	if expected == "" {
		expected = digest.Digest(w.record.Want)
	}
	sum := [32]byte(w.hash.Sum(nil))
	is := sumDigest(sum)
	if size != 0 && size != w.record.Size {
		return Info{}, fmt.Errorf("write %.200q: %d bytes, wanted %d: %w", w.ref, w.record.Size, size, ErrMismatch)
	}
	if expected != "" && expected != is {
		return Info{}, fmt.Errorf("write %.200q: digest %s, wanted %.200s: %w", w.ref, is, expected, ErrMismatch)
	}
	now := time.Now().UTC()
	info = Info{Digest: is, Size: w.record.Size, Created: now, Updated: now, Labels: labels}
	exists := false
	err = w.s.update(ctx, func(tx *holdfast.Tx) (err error) {
		if exists, err = w.toContent(tx, &info, sum); exists && w.stored { // in the same transaction: the caller may be gone after it
			return drop(tx, w.ref)
		}
		return err
	})
	if exists {
		w.s.freed()
		return info, errors.Join(fmt.Errorf("content %s: %w", is, ErrExists), err)
	}
	return info, err
}

// toContent makes what was written content, unless there is such content.
func (w *Writer) toContent(tx *holdfast.Tx, info *Info, sum [32]byte) (exists bool, err error) {
	_, old, err := find(tx, info.Digest)
	if err == nil {
		return true, nil
	}
	if errors.Is(err, ErrCorrupt) {
		err = release(tx, old)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, err
	}
	ref, err := w.toBlob(tx)
	if err != nil {
		return false, err
	}
	if w.stored {
		if err := tx.Bucket(bucketIngests).Delete([]byte(w.ref)); err != nil {
			return false, err
		}
	}
	return false, putInfo(tx, info, ref)
}

// toBlob makes what was written a blob.
func (w *Writer) toBlob(tx *holdfast.Tx) (blob.Ref, error) {
	if w.saved == 0 {
		b, err := blobs(tx)
		if err != nil {
			return blob.Ref{}, err
		}
		return b.Put(w.buffer)
	}
	in, err := ingest(tx, w.ref, w.saved)
	if err != nil {
		return blob.Ref{}, err
	}
	if _, err := in.Write(w.buffer); err != nil {
		return blob.Ref{}, err
	}
	return in.Commit()
}

// Close ends the Writer. What was written and not committed is saved: a Writer of the same ref goes on with it. An error is also
// one of a save before: then less is there than Write has taken.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil
	}
	_ = w.wait()
	if w.ended {
		return nil
	}
	err := w.usable()
	w.ended = true
	defer w.s.leave(w)
	if w.failed != nil {
		w.buffer = nil
		return err
	}
	r, err := w.stamped()
	if err == nil {
		err = w.s.update(context.Background(), func(tx *holdfast.Tx) error { return put(tx, w.ref, &r, w.buffer, w.saved) })
	}
	w.buffer = nil
	if err != nil {
		return fmt.Errorf("write %.200q: saving what was written: %w", w.ref, err)
	}
	return nil
}
