package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"holdfast"
)

// mustPanic runs fn and returns what it panicked with.
func mustPanic(t *testing.T, fn func()) (value any) {
	t.Helper()
	defer func() {
		if value = recover(); value == nil {
			t.Error("no panic")
		}
	}()
	fn()
	return nil
}

// Ending a transaction within Update or View is a mistake in the program. It
// must not leave the writer lock taken.
func TestManagedTransactions(t *testing.T) {
	db := openNew(t, 0)
	for name, end := range map[string]func(tx *holdfast.Tx) error{
		"commit":   (*holdfast.Tx).Commit,
		"rollback": (*holdfast.Tx).Rollback,
	} {
		want := "managed tx " + name + " not allowed"
		use := func(tx *holdfast.Tx) error {
			if got := mustPanic(t, func() { _ = end(tx) }); got != want {
				t.Errorf("panics with %v, want %s", got, want)
			}
			return nil
		}
		must(t, db.Update(use))
		must(t, db.View(use))
		mustPanic(t, func() { _ = db.Update(end) })
		mustPanic(t, func() { _ = db.View(end) })
	}
	must(t, within(t, "the next writer", func() error { return db.Update(func(*holdfast.Tx) error { return nil }) }))
	if s := db.Stats(); s.OpenTxN != 0 {
		t.Errorf("%d readers left", s.OpenTxN)
	}
}

// A panic in the function given to Update undoes what it did, gives up the
// writer lock, and reaches the caller; one in View ends its reader.
func TestPanicInFunction(t *testing.T) {
	db := openNew(t, 0)
	boom := errors.New("boom")
	got := mustPanic(t, func() {
		_ = db.Update(func(tx *holdfast.Tx) error {
			createBucket(t, tx, "b")
			panic(boom)
		})
	})
	if got != boom {
		t.Errorf("panicked with %v", got)
	}
	if got := mustPanic(t, func() { _ = db.View(func(tx *holdfast.Tx) error { panic(boom) }) }); got != boom {
		t.Errorf("panicked with %v", got)
	}
	must(t, within(t, "the next writer", func() error {
		return db.Update(func(tx *holdfast.Tx) error {
			if tx.Bucket([]byte("b")) != nil {
				t.Error("what the panicking function did is there")
			}
			return nil
		})
	}))
	checkDB(t, db)
	must(t, within(t, "Close", db.Close)) // no reader is left
}

// The functions given to OnCommit run in order, after the state is visible, and
// not at all if there is no commit.
func TestOnCommit(t *testing.T) {
	db := openNew(t, 0)
	var ran []int
	note := func(i int) func() {
		return func() {
			ran = append(ran, i)
			view(t, db, func(tx *holdfast.Tx) {
				if i < 10 && tx.Bucket([]byte("b")) == nil {
					t.Error("OnCommit runs before the commit is visible")
				}
			})
		}
	}
	update(t, db, func(tx *holdfast.Tx) {
		createBucket(t, tx, "b")
		for i := range 5 {
			tx.OnCommit(note(i))
		}
	})
	if !slices.Equal(ran, []int{0, 1, 2, 3, 4}) {
		t.Errorf("ran %v", ran)
	}
	ran = nil
	for _, change := range []bool{false, true} {
		if err := db.Update(func(tx *holdfast.Tx) error {
			if change {
				createBucket(t, tx, "other")
			}
			tx.OnCommit(note(10))
			return errAgain
		}); err != errAgain {
			t.Fatal(err)
		}
		tx := begin(t, db, true)
		tx.OnCommit(note(11))
		must(t, tx.Rollback())
	}
	if ran != nil {
		t.Errorf("ran %v without a commit", ran)
	}
	update(t, db, func(tx *holdfast.Tx) { tx.OnCommit(note(20)) }) // a commit of nothing is one
	if !slices.Equal(ran, []int{20}) {
		t.Errorf("ran %v", ran)
	}
	// From such a function the next transaction can begin.
	must(t, within(t, "Update in OnCommit", func() error {
		var inner error
		err := db.Update(func(tx *holdfast.Tx) error {
			tx.OnCommit(func() { inner = db.Update(func(*holdfast.Tx) error { return nil }) })
			return tx.Bucket([]byte("b")).Put([]byte("k"), nil)
		})
		return errors.Join(err, inner)
	}))
}

// A function's error is returned as it is and undoes everything; the numbers of
// transactions go up by one with each commit, not with one that was undone or
// that changed nothing.
func TestTransactionNumbers(t *testing.T) {
	db := openNew(t, 0)
	id := func() (id int) {
		view(t, db, func(tx *holdfast.Tx) { id = tx.ID() })
		return id
	}
	last := id()
	for i := range 5 {
		update(t, db, func(tx *holdfast.Tx) {
			if tx.ID() != last+1 {
				t.Errorf("the writer is %d, want %d", tx.ID(), last+1)
			}
			_, err := tx.CreateBucket(fmt.Append(nil, i))
			must(t, err)
		})
		if last++; id() != last {
			t.Errorf("readers are %d, want %d", id(), last)
		}
		if err := db.Update(func(tx *holdfast.Tx) error {
			must(t, tx.DeleteBucket(fmt.Append(nil, i)))
			return errAgain
		}); err != errAgain {
			t.Errorf("Update gives %v, want the function's error", err)
		}
		update(t, db, func(*holdfast.Tx) {})
		if err := db.View(func(*holdfast.Tx) error { return errAgain }); err != errAgain {
			t.Errorf("View gives %v, want the function's error", err)
		}
		if id() != last {
			t.Errorf("readers are %d, want still %d", id(), last)
		}
	}
	var none *holdfast.Tx
	if none.ID() != -1 || new(holdfast.Tx).ID() != -1 {
		t.Error("a transaction that is none has a number")
	}
	if db := new(holdfast.Tx).DB(); db != nil {
		t.Error("a transaction that is none has a database")
	}
}

// Page describes every page of the file, as what it is.
func TestPages(t *testing.T) {
	db := open(t, writeSample(t), &holdfast.Options{ReadOnly: true, PreLoadFreelist: true})
	types := map[string]int{}
	view(t, db, func(tx *holdfast.Tx) {
		pages := int(tx.Size() / samplePageSize)
		for id := 0; id < pages; {
			info, err := tx.Page(id)
			must(t, err)
			if info.ID != id {
				t.Errorf("page %d says it is %d", id, info.ID)
			}
			types[info.Type]++
			if info.Type == "free" {
				id++
				continue
			}
			id += 1 + info.OverflowCount
		}
		for _, id := range []int{-1, pages, math.MaxInt} {
			if info, err := tx.Page(id); info != nil || err != nil {
				t.Errorf("page %d: %v, %v", id, info, err)
			}
		}
		var s holdfast.BucketStats
		must(t, tx.ForEach(func(_ []byte, b *holdfast.Bucket) error { s.Add(b.Stats()); return nil }))
		// The root bucket's leaf is not among the buckets' pages.
		if types["meta"] != 2 || types["freelist"] != 1 || types["branch"] != s.BranchPageN || types["leaf"] != s.LeafPageN+1 {
			t.Errorf("pages %v; buckets have %d branches and %d leaves", types, s.BranchPageN, s.LeafPageN)
		}
		if free := db.Stats().FreePageN; types["free"] != free || free == 0 {
			t.Errorf("pages %v, Stats say %d are free", types, free)
		}
	})
}
