package snapshot

import (
	"context"
	"errors"
	"fmt"
)

// measured tells whether it is recorded what a snapshot takes.
func (r *record) measured() bool { return r.kind == Committed && r.flags&flagUnmeasured == 0 }

// committedTree is the tree of a committed snapshot. Its parents need not be usable: they are not looked into.
func (t *txn) committedTree(r *record) (Tree, error) {
	parents, err := t.lineage(r.parent, func(*record) error { return nil })
	return Tree{Layer: t.store.layer(r.id), Kind: Committed, Parents: t.store.layers(parents)}, err
}

// setUsage enters what a committed snapshot takes into its record, which is to be saved, and into the totals.
func (t *txn) setUsage(r *record, u Usage) error {
	if err := t.count(r, -1); err != nil {
		return err
	}
	r.usage = u
	if r.flags&flagUnmeasured != 0 {
		r.flags &^= flagUnmeasured
		if err := t.delete(inUnmeasured, number(uint64(r.id))); err != nil {
			return err
		}
	}
	return t.count(r, 1)
}

// Measured measures the snapshots that were committed with MeasureLater, which the store else does in the background, and
// returns when none is left that was begun before. If one fails the others are measured all the same. It does not wait for
// a Finisher, after which a snapshot is measured again.
func (s *Store) Measured(ctx context.Context) error {
	end, err := s.measure.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return s.measureAll(ctx, true)
}

// MeasuredPrunable is Measured but for the snapshots of clients, of which nothing is pruned. It does not wait for these.
func (s *Store) MeasuredPrunable(ctx context.Context) error { return s.measureAll(ctx, false) }

func (s *Store) measureAll(ctx context.Context, clients bool) error {
	limit := s.ids.upcoming()
	var errs []error
	for at := ID(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		id, err := s.nextUnmeasured(at, clients)
		if err != nil || id == 0 || id >= limit {
			return errors.Join(append(errs, err)...)
		}
		at = id
		if err := s.measureOne(ctx, "measure", id, nil); err != nil {
			errs = append(errs, fmt.Errorf("measuring snapshot %v: %w", id, err))
		}
	}
}

// nextUnmeasured is the first snapshot after one that is to be measured, of a client only if that is wanted; 0 if there is none.
func (s *Store) nextUnmeasured(after ID, clients bool) (id ID, err error) {
	err = s.view("unmeasured", func(t *txn) error {
		return t.scan(inUnmeasured, nil, number(uint64(after)+1), func(k, _ []byte) (bool, error) {
			n, _, err := fixed(bucketNames[inUnmeasured], k, 1)
			if err != nil {
				return false, err
			}
			key, err := t.keyOf(ID(n))
			if err != nil || !clients && t.store.isClient(key) {
				return err == nil, err
			}
			id = ID(n)
			return false, nil
		})
	})
	return id, err
}

// measureOne measures a committed snapshot, unless it has been removed, after something was done to it, and stores what it
// takes then.
func (s *Store) measureOne(ctx context.Context, op string, id ID, do func(context.Context, Layer) error) error {
	if err := s.busy.take(ctx, id); err != nil {
		return err
	}
	defer s.busy.release(id)
	var tree Tree
	err := s.view(op, func(t *txn) error {
		_, r, err := t.ifThere(id)
		if err == nil && r.kind == Committed {
			tree, err = t.committedTree(&r)
		}
		return err
	})
	if err != nil || tree.ID == 0 {
		return err
	}
	if do != nil {
		if err := do(ctx, tree.Layer); err != nil {
			return err
		}
	}
	usage, err := s.driver.Usage(ctx, tree)
	if err != nil {
		if s.isGone(id) {
			return nil
		}
		return fmt.Errorf("driver %s: %w", s.driver.Name(), err)
	}
	return s.update(op, func(t *txn) error {
		key, r, err := t.ifThere(id)
		if err != nil || r.kind != Committed {
			return err
		}
		if err := t.setUsage(&r, usage); err != nil {
			return err
		}
		return t.save(key, &r, r.used)
	})
}

// ifThere is the record of the snapshot with an ID, empty if it was removed.
func (t *txn) ifThere(id ID) ([]byte, record, error) {
	v, err := t.get(inIDs, number(uint64(id)))
	if err != nil || v == nil {
		return nil, record{}, err
	}
	return t.byID(id)
}

// isGone tells of a snapshot that a driver could not measure that it was removed, and its directory may be deleted.
func (s *Store) isGone(id ID) (gone bool) {
	err := s.view("gone", func(t *txn) error {
		_, r, err := t.ifThere(id)
		gone = r.id == 0
		return err
	})
	return gone && err == nil
}
