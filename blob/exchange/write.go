package exchange

import (
	"errors"
	"fmt"

	"holdfast"
	"holdfast/blob"
)

// maxAgain bounds how often what was planned of a blob is found not to hold, without anything coming to it meanwhile.
const maxAgain = 100

// errOther is of a blob whose tree is not that of its content.
var errOther = errors.New("its content is not cut into chunks as in a store")

// errMoved is of a blob of which others keep removing what was received.
var errMoved = errors.New("what arrives of it is removed meanwhile; try again with another lease")

// write writes steps of which all has arrived, in one transaction.
func (k *sink) write(steps []step) error {
	if len(steps) == 0 {
		return nil
	}
	w := writing{sink: k}
	err := k.db.Update(func(tx *holdfast.Tx) (err error) {
		if w.store, err = k.open(tx); err != nil {
			return err
		}
		w.store.InlineUpTo(-1) // what is put has another reference
		w.store.VerifyStored(k.mends)
		if w.lease, err = w.store.Lease(k.o.Lease, k.o.Expires); err != nil {
			return err
		}
		for i := range steps {
			if err := w.step(&steps[i]); err != nil {
				return err
			}
		}
		return w.save()
	})
	if err != nil {
		return local(err)
	}
	k.stats.Transactions++
	k.stats.Reused += w.reused
	for _, t := range w.ended {
		if err := k.finish(t); err != nil {
			return err
		}
	}
	return nil
}

// writing is a transaction of a sink.
type writing struct {
	*sink
	store  *blob.Store
	lease  *blob.Lease
	ended  []*transfer // that are done, or have failed
	reused int64

	t  *transfer // whose ingest is open; nil: none is
	in *blob.Ingest
}

// step writes a step, unless it is of a plan that was given up.
func (w *writing) step(s *step) error {
	t := s.t
	if t.done || t.err != nil || s.round != t.round {
		return nil
	}
	if s.slot != nil && s.slot.err != nil {
		w.fail(t, s.slot.err)
		return nil
	}
	if s.kind == stepFail {
		w.fail(t, s.err)
		return nil
	}
	if t.ref.Level() == 0 {
		return w.leaf(s)
	}
	if err := w.ingest(t); err != nil || t.done || t.err != nil {
		return err
	}
	switch at := w.in.Offset(); {
	case s.kind == stepReset && at == t.start:
		err := w.in.Abort()
		w.t, w.in = nil, nil
		w.replan(t, 0, false)
		return err
	case at != s.offset || s.kind == stepReset:
		w.replan(t, at, false)
		return nil
	case s.kind == stepEnd:
		return w.commit(t)
	case s.slot != nil:
		t.again = 0
		return w.in.AppendVerified(s.slot.data)
	}
	ok, err := w.in.AppendStored(s.chunk)
	if err != nil {
		return err
	}
	if !ok { // it was removed meanwhile
		if err := w.look(w.store, s.chunk); err != nil {
			return err
		}
		w.replan(t, s.offset, true)
		return nil
	}
	t.again = 0
	w.reused += s.chunk.Size
	return nil
}

// fail gives up a blob. What has arrived of it stays, for another exchange.
func (w *writing) fail(t *transfer, err error) {
	t.err = err
	w.ended = append(w.ended, t)
}

// replan has what comes of a blob from an offset on planned again.
func (w *writing) replan(t *transfer, from int64, leaves bool) {
	if t.again++; t.again > maxAgain {
		w.fail(t, errMoved)
		return
	}
	t.round++
	t.start, t.leaves = from, leaves
	t.walk.begin(t.ref)
	w.queue = append(w.queue, t)
}

// leaf puts a blob of one leaf.
func (w *writing) leaf(s *step) error {
	t := s.t
	if s.kind != stepChunk {
		return nil
	}
	var p []byte
	var err error
	if s.slot != nil {
		p = s.slot.data.Bytes()
	} else if p, err = w.store.Chunk(s.chunk.Address, 0); err != nil {
		if errors.Is(err, blob.ErrMissing) || errors.Is(err, blob.ErrCorrupt) {
			w.mends = w.mends || errors.Is(err, blob.ErrCorrupt)
			w.replan(t, 0, true)
			return nil
		}
		return err
	} else {
		w.reused += s.chunk.Size
	}
	ref, err := w.store.Put(p)
	if err != nil {
		return err
	}
	return w.hold(t, ref)
}

// ingest opens the ingest of a blob, or finds that the blob is there.
func (w *writing) ingest(t *transfer) (err error) {
	if w.t == t {
		return nil
	}
	if err := w.save(); err != nil {
		return err
	}
	has, err := w.isThere(w.store, t.ref)
	if err != nil {
		return err
	}
	o := blob.IngestOptions{Size: t.ref.Size(), Lifetime: w.o.Keep}
	if !has {
		// One of the same name that cannot be resumed, as another's, does not end the others. If the error is one of the
		// transaction, its commit has it, too.
		in, err := w.store.Ingest(t.name, o)
		if err == nil && w.o.Verify && !t.known && in.Offset() > 0 {
			if err = in.Abort(); err == nil {
				in, err = w.store.Ingest(t.name, o)
			}
		}
		if err != nil {
			w.fail(t, fmt.Errorf("%w; drop it with Abort, or exchange with another lease", err))
			return nil
		}
		w.in, w.t, t.kept, t.known = in, t, true, true
		return nil
	}
	if err := w.lease.Add(t.ref); err != nil {
		return err
	}
	t.done = true
	w.ended = append(w.ended, t)
	if !t.kept {
		return nil
	}
	in, err := w.store.Ingest(t.name, o) // of what had arrived
	if err != nil {
		return nil // it is another's
	}
	return in.Abort()
}

// save saves the open ingest.
func (w *writing) save() error {
	if w.t == nil {
		return nil
	}
	in := w.in
	w.t, w.in = nil, nil
	return in.Save()
}

// commit makes what has arrived a blob.
func (w *writing) commit(t *transfer) error {
	in := w.in
	w.t, w.in = nil, nil
	ref, err := in.Commit()
	if err != nil {
		return err
	}
	return w.hold(t, ref)
}

// hold has the lease hold what was stored, in place of the use that storing it has counted.
func (w *writing) hold(t *transfer, ref blob.Ref) error {
	if ref == t.ref {
		if err := w.lease.Add(ref); err != nil {
			return err
		}
		t.done = true
		w.ended = append(w.ended, t)
	} else {
		w.fail(t, errOther)
	}
	return w.store.Delete(ref)
}

// holdWhole has the lease hold blobs that the store has. What it has no more comes into the queue.
func (k *sink) holdWhole(refs []blob.Ref) error {
	if len(refs) == 0 {
		return nil
	}
	var held []*transfer
	err := k.db.Update(func(tx *holdfast.Tx) error {
		store, err := k.open(tx)
		if err != nil {
			return err
		}
		lease, err := store.Lease(k.o.Lease, k.o.Expires)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			t := &transfer{ref: ref}
			has, err := hasRoot(store, ref) // which may have been given twice, and not have come
			if err == nil && has {
				err = lease.Add(ref)
			}
			switch {
			case err == nil && has:
				held = append(held, t)
			case err == nil:
				t.begin(k.o.Lease, k.unfinished, k.o.Verify)
				k.queue = append(k.queue, t)
			default:
				return err
			}
		}
		return nil
	})
	if err != nil {
		return local(err)
	}
	k.stats.Transactions++
	for _, t := range held {
		k.stats.Whole++
		if err := k.finish(t); err != nil {
			return err
		}
	}
	return nil
}
