package snapshot

import (
	"context"
	"errors"
	"fmt"

	"holdfast"
)

// unknown tells of the error of a transaction that it may have been committed all the same.
func unknown(err error) bool { return errors.Is(err, holdfast.ErrStopped) }

// Commit makes of the active snapshot key a committed one called name, with the labels of
// options and no others. It must not be written to any more. It takes time in proportion to the
// number of files in it, which are counted unless MeasureLater is given, and of what is to be flushed (SyncMode).
// Errors: ErrExists of name, ErrNotFound of key or the parent, ErrKind if key is not active
// or the parent not committed, ErrSuspect, ErrUnsupported for WithParent and WithDigest with a driver that
// cannot, ErrInvalid.
func (t *Namespace) Commit(ctx context.Context, name, key string, options ...Option) error {
	if err := t.commit(ctx, name, key, choose(options)); err != nil {
		return fmt.Errorf("commit snapshot %q as %q: %w", key, name, err)
	}
	return nil
}

func (t *Namespace) commit(ctx context.Context, name, key string, c choices) error {
	labels, err := t.s.checkCommit(name, &c)
	if err != nil {
		return err
	}
	var before record
	var tree Tree
	look := func(tx *txn) (err error) {
		if before, tree, err = tx.tree(t.key(key)); err == nil {
			_, err = t.committable(tx, name, key, c.parent, before.id)
		}
		return err
	}
	if err := t.s.view("commit", look); err != nil {
		return err
	}
	id := before.id
	if err := t.s.busy.take(ctx, id); err != nil {
		return err
	}
	defer t.s.busy.release(id)
	if err := t.s.view("commit", look); err != nil { // another call may have had it
		return err
	}
	if before.id != id {
		return fmt.Errorf("%w any more", ErrNotFound)
	}
	usage, err := t.s.commitTree(ctx, tree, !c.measureLater)
	if err != nil {
		return err
	}
	err = t.s.update("commit", func(tx *txn) error {
		r, err := t.committable(tx, name, key, c.parent, before.id)
		if err != nil {
			return err
		}
		r.labels, r.usage = labels, usage
		return t.recordCommit(tx, name, key, &r, before.parent, &c)
	})
	if err == nil {
		t.s.reaper.finish(before.id)
		if c.digest {
			signal(t.s.digests.wake)
		}
		if c.measureLater {
			signal(t.s.measure.wake)
		}
	}
	return err
}

// recordCommit makes r, an active snapshot whose parent was before, the committed one of a name.
func (t *Namespace) recordCommit(tx *txn, name, key string, r *record, before ID, c *choices) error {
	if c.digest {
		r.flags |= flagPending
		if err := tx.reschedule(&record{}, r); err != nil {
			return err
		}
	}
	if c.measureLater {
		r.flags |= flagUnmeasured
		if err := tx.put(inUnmeasured, number(uint64(r.id)), nil); err != nil {
			return err
		}
	}
	if err := t.enterCommitted(tx, name, key, r); err != nil {
		return err
	}
	if c.lease != "" {
		if err := t.take(tx, c.lease, c.ttl, t.key(name), r); err != nil {
			return err
		}
	}
	if c.pass {
		if err := t.passLease(tx, c.lease, r); err != nil {
			return err
		}
	}
	if r.parent == before {
		return nil
	}
	return t.adopt(tx, r)
}

// checkCommit checks what Commit was called with, and returns the labels. c.digest is set if the store wants it.
func (s *Store) checkCommit(name string, c *choices) (map[string]string, error) {
	if err := checkName("name", name, MaxNameSize); err != nil {
		return nil, err
	}
	if c.old != 0 {
		return nil, fmt.Errorf("%w: Replacing is for Prepare and View", ErrInvalid)
	}
	labels, err := keepLabels(c.labels)
	if err != nil {
		return nil, err
	}
	if c.lease != "" {
		if err := checkLease(c.lease, c.ttl); err != nil {
			return nil, err
		}
	}
	if c.digest || s.opts.Digests {
		if _, ok := s.driver.(Digester); !ok {
			return nil, fmt.Errorf("a digest: %w by driver %s", ErrUnsupported, s.driver.Name())
		}
		c.digest = true
	}
	return labels, nil
}

// commitTree has the driver commit a tree, measures it if that is wanted, and flushes it if the store wants that.
func (s *Store) commitTree(ctx context.Context, tree Tree, measure bool) (usage Usage, err error) {
	if err := s.driver.Commit(ctx, tree); err != nil {
		return Usage{}, fmt.Errorf("driver %s: %w", s.driver.Name(), err)
	}
	if measure {
		if usage, err = s.driver.Usage(ctx, tree); err != nil {
			return Usage{}, fmt.Errorf("driver %s: %w", s.driver.Name(), err)
		}
	}
	if s.opts.Sync == SyncCommit {
		if err := s.flushContent(ctx, tree); err != nil {
			return Usage{}, err
		}
	}
	return usage, nil
}

// committable is the record of the active snapshot key, with its parent if that is given only now, if it
// can be committed as name.
func (t *Namespace) committable(tx *txn, name, key, parent string, id ID) (record, error) {
	if err := tx.vacant(t.key(name)); err != nil {
		return record{}, err
	}
	r, err := tx.record(t.key(key))
	if err != nil {
		return r, err
	}
	if r.kind != Active {
		return r, fmt.Errorf("%w: %v, not active", ErrKind, r.kind)
	}
	if r.id != id {
		return r, fmt.Errorf("%w any more", ErrNotFound)
	}
	if err := t.s.isSuspect(id); err != nil || parent == "" {
		return r, err
	}
	pid, err := t.parent(tx, parent)
	switch {
	case err != nil || pid == r.parent:
		return r, err
	case r.parent != 0:
		return r, fmt.Errorf("%w: it has another parent than %q", ErrInvalid, parent)
	}
	if _, ok := t.s.driver.(Rebaser); !ok {
		return r, fmt.Errorf("a parent at the commit: %w by driver %s", ErrUnsupported, t.s.driver.Name())
	}
	_, err = tx.ancestors(pid) // all of them can be trusted
	r.parent = pid
	return r, err
}

// enterCommitted gives the record r of the active snapshot key its new name and kind.
func (t *Namespace) enterCommitted(tx *txn, name, key string, r *record) error {
	if err := tx.count(r, -1); err != nil {
		return err
	}
	r.kind = Committed
	r.created = t.s.now()
	r.updated, r.used = r.created, r.created
	if t.s.opts.Sync == SyncDeferred {
		v, err := tx.get(inMeta, keySync)
		if err != nil {
			return err
		}
		st, err := parseSyncState(v)
		if err != nil {
			return err
		}
		st.commit++
		r.commit = st.commit
		if err := tx.put(inMeta, keySync, st.append(nil)); err != nil {
			return err
		}
	}
	if err := tx.count(r, 1); err != nil {
		return err
	}
	if err := tx.delete(inSnapshots, t.key(key)); err != nil {
		return err
	}
	if err := tx.put(inIDs, number(uint64(r.id)), t.key(name)); err != nil {
		return err
	}
	return tx.save(t.key(name), r, r.used)
}
