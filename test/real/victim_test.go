package real

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"holdfast"
)

// What a victim says besides results, a line each, with a number.
const (
	saysReady = "ready" // 0
	saysAlive = "alive" // 0: a busy goroutine has done something
)

// What an operation gave.
const (
	gaveRight = "right" // success, and what it found is right
	gaveError = "error"
	gaveWrong = "wrong" // success, with other content than there was
	gaveOther = "other" // an error that speaks of no damage
)

// victim is a process whose file is changed by somebody else.
type victim struct {
	order
	db      *holdfast.DB
	model   *model
	content []string // after Commits
	held    *holdfast.Tx
	cursor  *holdfast.Cursor
	writing *holdfast.Tx
}

var errWrong = errors.New("other content than there was")

// runVictim opens the file, waits until it has been changed, and does all that
// one can do with a database. How that ends is the parent's to verify; that the
// process lives to tell is the point.
func runVictim(o order) error {
	v := &victim{order: o, model: newModel(history{seed: o.History, large: o.Large})}
	if err := v.model.forward(o.Commits); err != nil {
		return err
	}
	v.content = v.model.lines()
	db, err := openHoldfast(o.Path, o.Options)
	if err != nil {
		return err
	}
	v.db = db.DB
	if v.held, err = v.db.Begin(false); err != nil {
		return err
	}
	name, _ := v.held.Cursor().First()
	v.cursor = v.held.Bucket(name).Cursor()
	v.cursor.First()
	stop := func() {}
	if o.Busy {
		stop = v.beBusy()
	} else {
		if v.writing, err = v.db.Begin(true); err != nil {
			return err
		}
		if err := v.model.edit(newHoldfastTx(v.writing).root, o.Commits+1); err != nil {
			return err
		}
	}
	say(saysReady, 0)
	<-told
	stop()
	v.all()
	return nil
}

// beBusy reads and commits on some goroutines until it is stopped.
func (v *victim) beBusy() (stop func()) {
	var wg sync.WaitGroup
	var stopped atomic.Bool
	run := func(do func() error) {
		wg.Go(func() {
			for !stopped.Load() {
				v.report("busy", do())
				say(saysAlive, 0)
			}
		})
	}
	for range 2 {
		run(func() error {
			return v.db.View(func(tx *holdfast.Tx) error {
				t := newHoldfastTx(tx)
				first, err := t.lines()
				if err != nil {
					return err
				}
				second, err := t.lines()
				if err == nil && compare(second, first) != nil {
					return errWrong
				}
				return err
			})
		})
	}
	run(func() error {
		return v.db.Update(func(tx *holdfast.Tx) error {
			t := newHoldfastTx(tx)
			return v.model.edit(t.root, t.number()+1)
		})
	})
	return func() {
		stopped.Store(true)
		wg.Wait()
	}
}

// report says what an operation gave.
func (v *victim) report(what string, err error) {
	var damage *holdfast.CorruptError
	gave := gaveOther
	switch {
	case err == nil:
		gave = gaveRight
	case errors.Is(err, errWrong):
		gave = gaveWrong
	case errors.As(err, &damage), errors.Is(err, holdfast.ErrStopped),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		gave = gaveError
	}
	text := ""
	if err != nil {
		text = err.Error()[:min(len(err.Error()), 300)]
	}
	fmt.Printf("%q %s %q\n", what, gave, text)
}

// operations are the names of all that a victim does, in this order.
var operations = []struct {
	name string
	do   func(v *victim) error
}{
	{"held cursor", (*victim).goOn},
	{"held reader", (*victim).readHeld},
	{"held reader's check", func(v *victim) error { return faultsOf(v.held.Check()) }},
	{"end of the held reader", func(v *victim) error { return v.held.Rollback() }},
	{"commit", (*victim).commitHeld},
	{"view", func(v *victim) error { return v.db.View(v.same) }},
	{"get", func(v *victim) error { return v.db.View(v.get) }},
	{"backward", func(v *victim) error { return v.db.View(backward) }},
	{"stats", func(v *victim) error { return v.db.View(bucketStats) }},
	{"pages", func(v *victim) error { return v.db.View(pages) }},
	{"update", func(v *victim) error { return v.db.Update(v.edit) }},
	{"batch", func(v *victim) error { return v.db.Batch(v.edit) }},
	{"rollback", func(v *victim) error { return v.rollBack() }},
	{"delete", func(v *victim) error { return v.db.Update(deleteAll) }},
	{"view after writing", func(v *victim) error { return v.db.View(v.readAll) }},
	{"check", func(v *victim) error {
		return v.db.View(func(tx *holdfast.Tx) error { return faultsOf(tx.Check()) })
	}},
	{"verify", (*victim).verify},
	{"compact", func(v *victim) error { return holdfastDB{v.db}.compactTo(v.Path + ".compact") }},
	{"write to", func(v *victim) error {
		return v.db.View(func(tx *holdfast.Tx) error { _, err := tx.WriteTo(io.Discard); return err })
	}},
	{"copy file", func(v *victim) error {
		return v.db.View(func(tx *holdfast.Tx) error { return tx.CopyFile(v.Path+".copied", 0o600) })
	}},
	{"sync", func(v *victim) error { return v.db.Sync() }},
	{"statistics", func(v *victim) error { _ = v.db.Stats(); return nil }},
	{"close", func(v *victim) error { return v.db.Close() }},
}

func (v *victim) all() {
	for _, op := range operations {
		v.report(op.name, op.do(v))
	}
}

// guarded runs fn with faults as panics and those as errors: who reads bytes
// that came from a transaction of Begin has to do this himself.
func guarded(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			fault, ok := r.(interface{ Addr() uintptr })
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("%w: fault at %x", io.ErrUnexpectedEOF, fault.Addr())
		}
	}()
	return fn()
}

func (v *victim) goOn() error {
	for k, _ := v.cursor.Next(); k != nil; k, _ = v.cursor.Next() {
		if err := guarded(func() error { _ = string(k); return nil }); err != nil {
			return err
		}
	}
	return v.held.Err()
}

// readHeld reads all through the transaction that was begun before.
func (v *victim) readHeld() error {
	return guarded(func() error {
		lines, err := newHoldfastTx(v.held).lines()
		if err = errors.Join(err, v.held.Err()); err == nil && compare(lines, v.content) != nil {
			return errWrong
		}
		return err
	})
}

// commitHeld commits what was edited before.
func (v *victim) commitHeld() error {
	if v.writing == nil {
		return nil
	}
	return v.writing.Commit()
}

// readAll reads everything.
func (v *victim) readAll(tx *holdfast.Tx) error {
	_, err := newHoldfastTx(tx).lines()
	return errors.Join(err, tx.Err())
}

// same reads everything and looks whether it is what it has to be.
func (v *victim) same(tx *holdfast.Tx) error {
	lines, err := newHoldfastTx(tx).lines()
	if err = errors.Join(err, tx.Err()); err != nil {
		return err
	}
	if v.Busy {
		return nil
	}
	wanted := v.content
	if tx.ID() > v.held.ID() { // the commit has succeeded
		if err := v.model.forward(v.Commits + 1); err != nil {
			return err
		}
		wanted = v.model.lines()
	}
	if compare(lines, wanted) != nil {
		return errWrong
	}
	return nil
}

func (v *victim) get(tx *holdfast.Tx) error {
	for i := range 4 {
		b := tx.Bucket(fmt.Appendf(nil, "b%d", i))
		for k := 0; b != nil && k < 300; k++ {
			_ = string(b.Get(fmt.Appendf(nil, "k%03d", k)))
		}
	}
	return tx.Err()
}

func backward(tx *holdfast.Tx) error {
	err := tx.ForEach(func(_ []byte, b *holdfast.Bucket) error {
		if b == nil {
			return tx.Err()
		}
		c := b.Cursor()
		for k, v := c.Last(); k != nil; k, v = c.Prev() {
			_, _ = string(k), string(v)
		}
		return nil
	})
	return errors.Join(err, tx.Err())
}

func bucketStats(tx *holdfast.Tx) error {
	err := tx.ForEach(func(_ []byte, b *holdfast.Bucket) error {
		if b != nil {
			_ = b.Stats()
		}
		return nil
	})
	_ = tx.Inspect()
	return errors.Join(err, tx.Err())
}

func pages(tx *holdfast.Tx) error {
	for id := 0; ; id++ {
		if info, err := tx.Page(id); err != nil || info == nil {
			return errors.Join(err, tx.Err())
		}
	}
}

func (v *victim) edit(tx *holdfast.Tx) error {
	t := newHoldfastTx(tx)
	return v.model.edit(t.root, t.number()+1)
}

func (v *victim) rollBack() error {
	tx, err := v.db.Begin(true)
	if err != nil {
		return err
	}
	err = guarded(func() error { return v.edit(tx) })
	return errors.Join(err, tx.Rollback())
}

func deleteAll(tx *holdfast.Tx) error {
	for i := range 4 {
		if err := tx.DeleteBucket(fmt.Appendf(nil, "b%d", i)); err != nil && err != holdfast.ErrBucketNotFound {
			return err
		}
	}
	return tx.Err()
}

func (v *victim) verify() error {
	found, err := v.db.Verify(context.Background())
	for _, fault := range found {
		err = errors.Join(err, fault)
	}
	return err
}

func faultsOf(found <-chan error) error {
	var all []error
	for fault := range found {
		all = append(all, fault)
	}
	return errors.Join(all...)
}

// runLook opens what was left, reads it and checks it.
func runLook(o order) error {
	v := &victim{order: o}
	db, err := openHoldfast(o.Path, o.Options)
	v.report("open", err)
	if err != nil {
		return nil
	}
	v.db = db.DB
	v.report("view", v.db.View(v.readAll))
	v.report("verify", v.verify())
	v.report("close", v.db.Close())
	return os.Remove(o.Path)
}
