package real

import (
	"errors"
	"fmt"
	"os"
)

// sight is what an engine finds in a file.
type sight struct {
	number uint64
	lines  []string
}

// verify opens what the kill left: a copy with Holdfast, which has errors where
// bbolt has panics; another with bbolt. Then one of the two goes on with the file
// itself from what it found, and what it leaves is opened with bbolt.
func (f *killFile) verify(h heard) error {
	if _, err := os.Stat(f.order.Path); os.IsNotExist(err) && h.done == 0 {
		return nil // killed before it was created
	}
	ours, err := f.lookAtCopy("holdfast", openOptions{ReadOnly: f.rand.IntN(2) == 0})
	if err != nil {
		return fmt.Errorf("a copy: %w", err)
	}
	if ours.number < h.done || ours.number > h.begun {
		return fmt.Errorf("the state is that of commit %d, want %d to %d", ours.number, h.done, h.begun)
	}
	bbolts := ours
	if h.done > 0 { // bbolt does not open a file whose creation was cut short
		if bbolts, err = f.lookAtCopy("bbolt", openOptions{}); err != nil {
			return fmt.Errorf("bbolt opens a copy: %w", err)
		}
		if bbolts.number < h.floor || bbolts.number > ours.number {
			return fmt.Errorf("bbolt finds the state of commit %d, want %d to %d", bbolts.number, h.floor, ours.number)
		}
	}
	engine := "holdfast"
	// On every third of the older states, and not on a third by chance: of ten that left one, once in ten runs.
	third := bbolts.number < ours.number && f.counts["bbolt finds an older state"]%3 == 0
	if h.done > 0 && (third || f.rand.IntN(10) == 0) {
		engine = "bbolt"
	}
	if err := f.compare(ours, bbolts, h, engine == "bbolt"); err != nil {
		return err
	}
	if err := f.commitSome(engine); err != nil {
		return fmt.Errorf("%s goes on: %w", engine, err)
	}
	after, err := f.lookAtCopy("bbolt", openOptions{})
	if err != nil {
		return fmt.Errorf("bbolt opens a copy of the closed file: %w", err)
	}
	if after.number != f.model.number {
		return fmt.Errorf("bbolt finds the state of commit %d in the closed file, want %d", after.number, f.model.number)
	}
	return compare(after.lines, f.model.lines())
}

// compare compares what both engines found with what there should be. The model
// is that of the state on which the file goes on, then.
func (f *killFile) compare(ours, bbolts sight, h heard, stock bool) error {
	if err := f.model.forward(bbolts.number); err != nil {
		return err
	}
	if err := compare(bbolts.lines, f.model.lines()); err != nil {
		return fmt.Errorf("bbolt: %w", err)
	}
	newest := f.model.clone()
	if err := newest.forward(ours.number); err != nil {
		return err
	}
	if err := compare(ours.lines, newest.lines()); err != nil {
		return err
	}
	older := bbolts.number < ours.number
	switch {
	case h.done == 0:
	case older:
		f.counts["bbolt finds an older state"]++
	default:
		f.counts["bbolt finds the newest state"]++
	}
	if newest.number > h.done {
		f.counts["an unacknowledged commit is there"]++
	} else if h.begun > h.done {
		f.counts["an unacknowledged commit is not there"]++
	}
	if !stock {
		f.model = newest
	} else if older {
		f.counts["bbolt goes on from an older state"]++
	}
	return nil
}

// lookAtCopy has an engine read and check a copy of the file.
func (f *killFile) lookAtCopy(engine string, o openOptions) (s sight, err error) {
	path := f.order.Path + ".verified"
	if err := copyFile(path, f.order.Path, 1<<20); err != nil {
		return s, err
	}
	o.PageSize, o.NoSync = f.order.Options.PageSize, true
	if fileSize(path) == 0 { // there is nothing to read, and somebody has to create it
		o.ReadOnly = false
	}
	db, err := open(engine, path, o)
	if err != nil {
		return s, err
	}
	err = db.view(func(tx transaction) error {
		s.number = tx.number()
		s.lines, err = tx.lines()
		return errors.Join(err, tx.check())
	})
	return s, errors.Join(err, db.close(), os.Remove(path))
}

// commitSome opens the file with an engine, looks whether it is as the model says,
// and makes the next edits. bbolt's own check is left out after its own
// commits: it may leak pages. Holdfast's comes later.
func (f *killFile) commitSome(name string) error {
	o := f.order.Options
	o.StrictCompat, o.SettleDelay = f.rand.IntN(2) == 0, -1
	db, err := open(name, f.order.Path, o)
	if err != nil {
		return err
	}
	if err := f.inspect(db, true); err != nil {
		return errors.Join(err, db.close())
	}
	for range 2 + f.rand.IntN(2) {
		n := f.model.number + 1
		err := db.update(func(tx transaction) error { return f.model.edit(tx.root, n) })
		if err == nil {
			err = errors.Join(f.model.forward(n), f.inspect(db, name != "bbolt"))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("commit %d: %w", n, err), db.close())
		}
	}
	return db.close()
}

// inspect tells whether the content is that of the model, and the structure
// whole, with every page accounted for.
func (f *killFile) inspect(db engine, check bool) error {
	return db.view(func(tx transaction) error {
		got, err := tx.lines()
		if err == nil {
			err = compare(got, f.model.lines())
		}
		if check {
			err = errors.Join(err, tx.check())
		}
		return err
	})
}
