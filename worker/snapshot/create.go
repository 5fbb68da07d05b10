package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holdfast/worker/mount"
)

// Prepare makes an active snapshot with the content of its parent, "" for an empty one, and
// returns its mounts. Errors: ErrExists, ErrNotFound of the parent, ErrKind if that is not
// committed, ErrDistrusted, ErrDamaged, ErrInvalid, and what the driver meets.
func (t *Namespace) Prepare(ctx context.Context, name, parent string, options ...Option) ([]mount.Mount, error) {
	mounts, err := t.begin(ctx, Active, name, parent, choose(options))
	if err != nil {
		return nil, fmt.Errorf("prepare snapshot %q on %q: %w", name, parent, err)
	}
	return mounts, nil
}

// View is Prepare for a snapshot that is only read.
func (t *Namespace) View(ctx context.Context, name, parent string, options ...Option) ([]mount.Mount, error) {
	mounts, err := t.begin(ctx, View, name, parent, choose(options))
	if err != nil {
		return nil, fmt.Errorf("view snapshot %q as %q: %w", parent, name, err)
	}
	return mounts, nil
}

func (t *Namespace) begin(ctx context.Context, kind Kind, name, parent string, c choices) ([]mount.Mount, error) {
	labels, err := checkBegin(name, &c)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	r := record{kind: kind, labels: labels}
	var parents []ID
	err = t.s.view("begin", func(tx *txn) (err error) {
		if _, err := tx.occupant(t.key(name), c.old); err != nil {
			return err
		}
		if r.parent, err = t.parent(tx, parent); err != nil {
			return err
		}
		parents, err = tx.ancestors(r.parent)
		return err
	})
	if err != nil {
		return nil, err
	}
	t.s.warnDeep(t.name, parent, parents)
	tree := Tree{Kind: kind, Parents: t.s.layers(parents)}
	if err := t.s.makeTree(ctx, &tree); err != nil {
		return nil, t.blame(parent, r.parent, t.s.missing(parents, err))
	}
	r.id = tree.ID
	mounts, err := t.s.mounts(ctx, tree)
	if err != nil {
		t.s.discard(r.id)
		return nil, err
	}
	var old record
	err = t.s.update("create", func(tx *txn) (err error) {
		if old, err = t.vacate(tx, name, c.old); err != nil {
			return err
		}
		return t.create(tx, name, parent, &r)
	})
	if err != nil {
		t.s.discardUnless(r.id, err)
		return nil, err
	}
	if err := reached("recorded"); err != nil {
		return nil, err
	}
	t.s.entered(r.id)
	t.s.ids.done(r.id)
	if old.id != 0 {
		t.s.reaper.add(doomed{id: old.id}, old.trashSize())
	}
	return mounts, nil
}

// checkBegin checks what Prepare or View was called with, and returns the labels.
func checkBegin(name string, c *choices) (map[string]string, error) {
	if err := checkName("name", name, MaxNameSize); err != nil {
		return nil, err
	}
	if c.parent != "" || c.lease != "" || c.digest || c.measureLater {
		return nil, fmt.Errorf("%w: WithParent, WithLease, PassingLease, WithDigest and MeasureLater are for Commit", ErrInvalid)
	}
	return keepLabels(c.labels)
}

// occupant is the record of the snapshot that has a key, if that is the one that may be replaced; zero if there is
// none; ErrExists if it is another.
func (t *txn) occupant(key []byte, id ID) (record, error) {
	r, err := t.record(key)
	switch {
	case errors.Is(err, ErrNotFound):
		return record{}, nil
	case err == nil && r.id != id:
		return record{}, ErrExists
	}
	return r, err
}

// vacate removes the snapshot with a name and an ID, if there is one.
func (t *Namespace) vacate(tx *txn, name string, id ID) (record, error) {
	key := t.key(name)
	r, err := tx.occupant(key, id)
	if err != nil || r.id == 0 {
		return record{}, err
	}
	if err := tx.removable(&r, t.s.now()); err != nil {
		return record{}, err
	}
	return r, tx.remove(key, &r)
}

// vacant is ErrExists if a snapshot has the key.
func (t *txn) vacant(key []byte) error {
	v, err := t.get(inSnapshots, key)
	if err == nil && v != nil {
		err = ErrExists
	}
	return err
}

// parent is the ID of a committed snapshot, 0 if the name is empty.
func (t *Namespace) parent(tx *txn, name string) (ID, error) {
	if name == "" {
		return 0, nil
	}
	r, err := tx.record(t.key(name))
	if err != nil {
		return 0, fmt.Errorf("parent %q: %w", name, err)
	}
	if r.kind != Committed {
		return 0, fmt.Errorf("parent %q: %w: %v, not committed", name, ErrKind, r.kind)
	}
	return r.id, nil
}

// create enters a snapshot whose directory is there under an unused name, if what begin has read is still so.
func (t *Namespace) create(tx *txn, name, parent string, r *record) error {
	key := t.key(name)
	if id, err := t.parent(tx, parent); err != nil {
		return err
	} else if id != r.parent { // removed, and made anew
		return fmt.Errorf("parent %q: %w any more", parent, ErrNotFound)
	}
	r.created = t.s.now()
	r.updated, r.used = r.created, r.created
	if err := tx.put(inIDs, number(uint64(r.id)), key); err != nil {
		return err
	}
	if err := tx.save(key, r, r.used); err != nil {
		return err
	}
	if err := tx.count(r, 1); err != nil {
		return err
	}
	return t.adopt(tx, r)
}

// useGrain is how old the last use of a parent must be for a further child to count as another: else the
// record of a base would be written with each of its children.
const useGrain = time.Minute

// adopt makes r a child of its parent, which is used by that.
func (t *Namespace) adopt(tx *txn, r *record) error {
	if r.parent == 0 {
		return nil
	}
	grain := useGrain
	if hook := testUseGrain.Load(); hook != nil {
		grain = *hook
	}
	if err := tx.put(inChildren, numbers(uint64(r.parent), uint64(r.id)), nil); err != nil {
		return err
	}
	key, p, err := tx.byID(r.parent)
	if err != nil {
		return err
	}
	was := p.used
	if r.used > p.used && r.used-p.used >= uint64(grain) {
		p.used = r.used
	}
	if p.used == was && !p.listed() {
		return nil
	}
	return tx.save(key, &p, was)
}

// blame is the error of the driver, or that the parent has gone while the driver was reading it.
func (t *Namespace) blame(parent string, id ID, err error) error {
	gone := t.s.view("begin", func(tx *txn) error {
		now, err := t.parent(tx, parent)
		if err == nil && now != id {
			err = fmt.Errorf("parent %q: %w any more", parent, ErrNotFound)
		}
		return err
	})
	if gone != nil {
		return gone
	}
	return err
}

// missing is the error of the driver, or that it has not found the directory of a parent.
func (s *Store) missing(parents []ID, err error) error {
	for _, id := range parents {
		if gone := s.present(id); errors.Is(gone, ErrMissing) {
			return gone
		}
	}
	return err
}

// present is ErrMissing if there is no directory of the ID.
func (s *Store) present(id ID) error {
	_, err := os.Lstat(s.dir(id))
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: %s", ErrMissing, s.dir(id))
	}
	return err
}

// Unusable is what Info.Unusable says of a snapshot of the store, or ErrMissing if its directory is not there, as when
// a metadata.db was put back that is older than its removal.
func (s *Store) Unusable(info *Info) error {
	if err := info.Unusable(); err != nil {
		return err
	}
	return s.present(info.ID)
}

// errTaken: there is a directory with an ID that was not given yet.
var errTaken = errors.New("there is such a directory already")

// makeTree takes an ID and makes the directory of a snapshot with it. If the metadata are older than the directories,
// as after they were restored from a backup, there may be one with that ID: it is put into quarantine, and the next
// ID is taken.
func (s *Store) makeTree(ctx context.Context, t *Tree) error {
	for {
		id, err := s.ids.take(s)
		if err != nil {
			return err
		}
		t.Layer = s.layer(id)
		err = s.makeDir(ctx, *t)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errTaken):
			s.discard(id)
			return err
		}
		known, err := s.known(id)
		if err != nil || known { // known: the metadata contradict themselves
			s.ids.done(id)
		} else {
			_, err = s.stray(id)
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
}

// makeDir makes the directory of a snapshot, with its content, under its final name. (W1)
func (s *Store) makeDir(ctx context.Context, t Tree) error {
	final := t.Dir
	t.Dir = filepath.Join(s.root, newDir, t.ID.String())
	if _, err := os.Lstat(final); err == nil {
		return fmt.Errorf("directory %s: %w", final, errTaken)
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Mkdir(t.Dir, ownDirMode|unentered); errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: %w", errTaken, err)
	} else if err != nil {
		return err
	}
	if err := reached("directory"); err != nil {
		return err
	}
	if err := s.driver.Create(ctx, t); err != nil {
		return fmt.Errorf("driver %s: %w", s.driver.Name(), err)
	}
	if err := reached("content"); err != nil {
		return err
	}
	if err := os.Rename(t.Dir, final); err != nil {
		return err
	}
	return reached("in place")
}

// discard has the directory of a snapshot that was not entered deleted.
func (s *Store) discard(id ID) { s.reaper.add(doomed{id: id, making: true}, allUnmeasured) }

// discardUnless is discard if err, of the transaction that was to enter the snapshot, says that it
// did not. If writing has stopped, it may have: what the disk holds is found out after the next Open.
func (s *Store) discardUnless(id ID, err error) {
	if !unknown(err) {
		s.discard(id)
	}
}

// mounts asks the driver.
func (s *Store) mounts(ctx context.Context, t Tree) ([]mount.Mount, error) {
	if err := s.present(t.ID); err != nil {
		return nil, err
	}
	mounts, err := s.driver.Mounts(ctx, t, t.Kind != Active)
	if err != nil {
		return nil, fmt.Errorf("driver %s: %w", s.driver.Name(), err)
	}
	return mounts, nil
}
