package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"holdfast/worker/internal/fstree"
	"holdfast/worker/mount"
)

// Repairer is a Digester that gives the same digest of the same content, whenever and wherever it was made, and
// keeps all of a snapshot in its directory: so that can be exchanged for another. Exchangeable is a mark and does
// nothing.
type Repairer interface {
	Digester
	Exchangeable()
}

// RepairOptions say how to repair a snapshot.
type RepairOptions struct {
	// Fill writes the content. The mounts are those of an active snapshot that was just prepared on the parent of the
	// one that is damaged; what Fill has mounted it unmounts.
	Fill func(ctx context.Context, mounts []mount.Mount) error

	// Unused tells of a view that stands on the snapshot, or on another that does, that it is not mounted. nil:
	// of none.
	Unused func(Info) bool

	// Forget unmounts what is mounted of a directory and idle; an error if anything is in use. It is called before
	// directories are exchanged. nil: nothing is mounted by this process.
	Forget func(ctx context.Context, dir string) error
}

// Repair makes the content of a damaged snapshot anew, and puts it in the place of what is there if it has the
// digest that is recorded; otherwise the error is ErrDamaged, and nothing changes. If what is there is not
// damaged (any more), that is found out first, and all that is done; so it is the end of ErrDistrusted, too.
//
// What is under the lower directory of a mounted overlay must not be exchanged. The store does not know
// what is mounted, but what could be: ErrInUse, with the name, if an active snapshot stands on it, however
// far above, or a view of which Unused does not say that it is not. ErrUnsupported with a driver that is
// not a Repairer, ErrNoDigest of a snapshot without a digest, ErrDamaged and ErrDistrusted of one whose
// parents are.
func (t *Namespace) Repair(ctx context.Context, name string, o RepairOptions) error {
	if err := t.repair(ctx, name, &o); err != nil {
		return fmt.Errorf("repair snapshot %q: %w", name, err)
	}
	return nil
}

func (t *Namespace) repair(ctx context.Context, name string, o *RepairOptions) error {
	s := t.s
	d, ok := s.driver.(Repairer)
	if !ok {
		return fmt.Errorf("%w with driver %s, which makes other bytes of the same content: remove the snapshot with what stands on it, and make it anew", ErrUnsupported, s.driver.Name())
	}
	r, err := t.digested(name)
	if err == nil && r.flags&flagDigest == 0 {
		err = ErrNoDigest
	}
	if err != nil {
		return err
	}
	// What was repaired otherwise, or before a crash, is not damaged any more.
	if found, err := s.look(ctx, r.id, DigestOptions{Fresh: true}); err != nil || !found.damaged {
		return err
	}
	if err := s.busy.take(ctx, r.id); err != nil {
		return err
	}
	defer s.busy.release(r.id)
	old := Tree{Layer: s.layer(r.id), Kind: Active}
	err = s.view("repair", func(tx *txn) error {
		parents, err := tx.ancestors(r.parent)
		if err != nil {
			return err
		}
		old.Parents = s.layers(parents)
		return tx.unmounted(r.id, o.Unused)
	})
	if err != nil {
		return err
	}
	fresh := Tree{Kind: Active, Parents: old.Parents}
	if err := s.makeTree(ctx, &fresh); err != nil {
		return err
	}
	defer s.discard(fresh.ID) // which has the other content then
	if err := reached("made"); err != nil {
		return err
	}
	usage, err := s.refill(ctx, d, fresh, &r, o.Fill)
	if err != nil {
		return err
	}
	if err := reached("filled"); err != nil {
		return err
	}
	if o.Forget != nil {
		if err := o.Forget(ctx, old.Dir); err != nil {
			return err
		}
	}
	if err := s.exchange(&r, fresh, old, usage, o.Unused); err != nil {
		return err
	}
	s.log.Info("a damaged snapshot was repaired", "namespace", t.name, "snapshot", name, "ID", r.id)
	return reached("entered")
}

// exchange puts the tree fresh in the place of old, that of r, which has no mounts then.
func (s *Store) exchange(r *record, fresh, old Tree, usage Usage, unused func(Info) bool) error {
	// The one that is exchanged for it is deleted after a crash, not kept.
	if err := s.mark(r.id); err != nil {
		return err
	}
	defer s.entered(r.id)                                                                // as it is
	exchange := sync.OnceValue(func() error { return exchangeDirs(fresh.Dir, old.Dir) }) // the transaction may be tried twice
	return s.update("repaired", func(tx *txn) error {
		if err := tx.repairable(r, fresh.ID, unused); err != nil {
			return err
		}
		if err := exchange(); err != nil {
			return err
		}
		if err := reached("exchanged"); err != nil {
			return err
		}
		if err := fstree.Flush(filepath.Dir(old.Dir)); err != nil { // before the mark goes
			return err
		}
		return tx.repaired(r.id, usage)
	})
}

// refill has the content of the snapshot r written into a new tree, and returns what that takes when it is on the disk
// and has the right digest.
func (s *Store) refill(ctx context.Context, d Repairer, fresh Tree, r *record, fill func(context.Context, []mount.Mount) error) (Usage, error) {
	mounts, err := s.mounts(ctx, fresh)
	if err != nil {
		return Usage{}, err
	}
	if err := fill(ctx, mounts); err != nil {
		return Usage{}, err
	}
	if err := s.driver.Commit(ctx, fresh); err != nil {
		return Usage{}, fmt.Errorf("driver %s: %w", s.driver.Name(), err)
	}
	if err := s.flushContent(ctx, fresh); err != nil {
		return Usage{}, err
	}
	sum, err := d.Digest(ctx, fresh.Layer, DigestOptions{Fresh: true})
	if err != nil {
		return Usage{}, fmt.Errorf("driver %s: %w", s.driver.Name(), err)
	}
	if sum != r.digest {
		return Usage{}, fmt.Errorf("%w, and what was made in its place has the digest %v, and should have %v", ErrDamaged, sum, r.digest)
	}
	usage, err := s.driver.Usage(ctx, fresh)
	if err != nil {
		return Usage{}, fmt.Errorf("driver %s: %w", s.driver.Name(), err)
	}
	return usage, nil
}

// repairable is an error if a snapshot is not what it was before any more, or must not get the tree fresh. What follows
// is done in the same transaction, so nothing comes to stand on the snapshot meanwhile.
func (t *txn) repairable(before *record, fresh ID, unused func(Info) bool) error {
	_, r, err := t.recorded(before.id)
	if err != nil {
		return err
	}
	if r.flags&flagDamaged == 0 || r.digest != before.digest {
		return fmt.Errorf("%w: it was verified or trusted meanwhile", ErrKind)
	}
	if err := t.store.isSuspect(fresh); err != nil {
		return err
	}
	return t.unmounted(r.id, unused)
}

// repaired takes the mark of a damaged snapshot away.
func (t *txn) repaired(id ID, usage Usage) error {
	key, r, err := t.recorded(id)
	if err != nil {
		return err
	}
	was := r
	if err := t.setUsage(&r, usage); err != nil {
		return err
	}
	r.commit, r.verified = 0, t.store.now()
	r.flags &^= flagDamaged
	if err := t.reschedule(&was, &r); err != nil {
		return err
	}
	return t.save(key, &r, r.used)
}

// exchangeDirs exchanges two directories, of which the second may not be there.
func exchangeDirs(fresh, old string) error {
	if _, err := os.Lstat(old); errors.Is(err, os.ErrNotExist) {
		return os.Rename(fresh, old)
	}
	return exchangeNames(fresh, old)
}

// unmounted is ErrInUse if something stands on a snapshot that may be mounted.
func (t *txn) unmounted(id ID, unused func(Info) bool) error {
	seen := map[ID]bool{} // damaged metadata may have a circle
	for todo := []ID{id}; len(todo) > 0; {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[id] {
			return corruptf("snapshot %v stands on itself", id)
		}
		seen[id] = true
		err := t.scan(inChildren, number(uint64(id)), nil, func(k, _ []byte) (bool, error) {
			_, child, err := fixed("child", k, 2)
			if err != nil {
				return false, err
			}
			key, r, err := t.byID(ID(child))
			if err != nil {
				return false, err
			}
			if r.kind == Committed {
				todo = append(todo, r.id)
				return true, nil
			}
			_, name, err := splitKey(key)
			if err != nil {
				return false, err
			}
			info, err := t.infoOf(name, &r)
			if err == nil && (r.kind != View || unused == nil || !unused(info)) {
				err = fmt.Errorf("%w: the %v snapshot %q stands on it and may be mounted; end what uses it, and remove it", ErrInUse, r.kind, name)
			}
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
