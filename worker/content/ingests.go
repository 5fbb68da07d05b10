package content

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"holdfast"
	"holdfast/blob"
)

// Status tells how far a ref is. ErrNotFound if nothing is written under it.
func (s *Store) Status(ctx context.Context, ref string) (status Status, err error) {
	if w := s.live(ref); w != nil {
		if status, ok := w.status(); ok {
			return status, nil
		}
	}
	err = s.view(ctx, func(tx *holdfast.Tx) error {
		v := tx.Bucket(bucketIngests).Get([]byte(ref))
		if v == nil {
			return fmt.Errorf("ref %.200q: %w", ref, ErrNotFound)
		}
		r, err := parseIngest([]byte(ref), v)
		status = r.status(ref)
		return err
	})
	return status, err
}

// status is how far it is, unless it has ended: then the file tells.
func (w *Writer) status() (status Status, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.record.status(w.ref), !w.ended
}

// live is the writer of a ref; nil if it has none.
func (s *Store) live(ref string) *Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writers[ref]
}

// Statuses tells of all that is being written, or waits to be continued, in the order of the refs.
func (s *Store) Statuses(ctx context.Context) (list []Status, err error) {
	s.mu.Lock()
	writers := make(map[string]*Writer, len(s.writers))
	for ref, w := range s.writers {
		writers[ref] = w
	}
	s.mu.Unlock()
	for ref, w := range writers {
		if status, ok := w.status(); ok {
			list = append(list, status)
		} else {
			delete(writers, ref)
		}
	}
	err = s.pages(ctx, bucketIngests, func(k, v []byte) (func() error, error) {
		r, err := parseIngest(k, v)
		status := r.status(string(k))
		return func() error {
			if writers[status.Ref] == nil {
				list = append(list, status)
			}
			return nil
		}, err
	})
	slices.SortFunc(list, func(a, b Status) int {
		if a.Ref < b.Ref {
			return -1
		}
		return 1
	})
	return list, err
}

// Abort gives up what is written under a ref, also while it has a Writer, which ends. ErrNotFound if there is nothing.
func (s *Store) Abort(ctx context.Context, ref string) error {
	for {
		w := s.live(ref)
		if w == nil {
			w = &Writer{s: s, ref: ref}
			w.mu.Lock()
			err := s.enter(w, math.MaxInt) // or a new writer would go on with what is removed
			if errors.Is(err, ErrBusy) {
				w.mu.Unlock()
				continue
			}
			if err == nil {
				err = s.abort(ctx, ref)
			}
			w.ended = true
			s.leave(w)
			w.mu.Unlock()
			return err
		}
		if ended, err := w.abort(ctx); ended || err != nil {
			return err
		}
	}
}

// abort ends a writer, and gives up what it has written. It does nothing if it has ended by itself.
func (w *Writer) abort(ctx context.Context) (ended bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.wait()
	if w.ended {
		return false, nil
	}
	if w.stored {
		if err := w.s.drop(ctx, w.ref); err != nil {
			return false, err
		}
	}
	w.ended = true
	w.buffer = nil
	w.s.leave(w)
	return true, nil
}

// abort gives up what is saved of a ref that has no writer.
func (s *Store) abort(ctx context.Context, ref string) error {
	err := s.update(ctx, func(tx *holdfast.Tx) error {
		if tx.Bucket(bucketIngests).Get([]byte(ref)) == nil {
			return fmt.Errorf("ref %.200q: %w", ref, ErrNotFound)
		}
		return drop(tx, ref)
	})
	if err == nil {
		s.freed()
	}
	return err
}

// drop gives up what is saved of a ref, if anything is.
func (s *Store) drop(ctx context.Context, ref string) error {
	err := s.update(ctx, func(tx *holdfast.Tx) error { return drop(tx, ref) })
	if err == nil {
		s.freed()
	}
	return err
}

// drop removes what is saved of a ref, if anything is.
func drop(tx *holdfast.Tx, ref string) error {
	b, err := blobs(tx)
	if err != nil {
		return err
	}
	in, err := b.Ingest(ingestName(ref), blob.IngestOptions{}) // also if the record is damaged: it is what goes
	if err != nil {
		return err
	}
	if err := in.Abort(); err != nil {
		return err
	}
	return tx.Bucket(bucketIngests).Delete([]byte(ref))
}
