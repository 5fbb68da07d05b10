package differential

import (
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/test/stock/ops"
)

// misusedTx and misusedDB have the methods that TestErrors calls where they
// must not be.
type misusedTx[B any, C ops.Cursor] interface {
	ops.Tx[B, C]
	MoveBucket(child []byte, src, dst B) error
}

type misusedDB[T any] interface {
	ops.DB[T]
	Update(func(T) error) error
	View(func(T) error) error
	Batch(func(T) error) error
}

// complaints collects what calls answer.
type complaints []string

func (c *complaints) note(what string, err error) {
	if err == nil {
		*c = append(*c, what+": nothing")
	} else {
		*c = append(*c, what+": "+err.Error())
	}
}

// misuseBucket calls all that changes a bucket.
func misuseBucket[B ops.Bucket[B, C], C ops.Cursor](c *complaints, when string, b B, cursor C) {
	for _, key := range [][]byte{nil, {}, []byte("value"), []byte("bucket"), []byte("none"), make([]byte, maxKeySize+1)} {
		name := when + ", " + show(key, key != nil)
		c.note(name+": Put", b.Put(key, []byte("x")))
		c.note(name+": Delete", b.Delete(key))
		if len(key) > maxKeySize {
			continue // bbolt takes any name for a bucket
		}
		_, err := b.CreateBucket(key)
		c.note(name+": CreateBucket", err)
		_, err = b.CreateBucketIfNotExists(key)
		c.note(name+": CreateBucketIfNotExists", err)
		if string(key) != "bucket" {
			c.note(name+": DeleteBucket", b.DeleteBucket(key))
		}
	}
	c.note(when+": SetSequence", b.SetSequence(1))
	_, err := b.NextSequence()
	c.note(when+": NextSequence", err)
	c.note(when+": ForEach", b.ForEach(func(_, _ []byte) error { return nil }))
	c.note(when+": ForEachBucket", b.ForEachBucket(func([]byte) error { return nil }))
	c.note(when+": Cursor.Delete", cursor.Delete())
}

// misuseTx calls all that changes a transaction's top level.
func misuseTx[T misusedTx[B, C], B ops.Bucket[B, C], C ops.Cursor](c *complaints, when string, tx T) {
	for _, name := range [][]byte{nil, {}, []byte("none"), []byte("top")} {
		call := when + ", " + show(name, name != nil)
		_, err := tx.CreateBucket(name)
		c.note(call+": Tx.CreateBucket", err)
		_, err = tx.CreateBucketIfNotExists(name)
		c.note(call+": Tx.CreateBucketIfNotExists", err)
		if string(name) != "top" {
			c.note(call+": Tx.DeleteBucket", tx.DeleteBucket(name))
		}
	}
}

// misuse runs one engine through everything that must not be done.
func misuse[D misusedDB[T], T misusedTx[B, C], B ops.Bucket[B, C], C ops.Cursor](t *testing.T, open func(ops.Options) (D, error)) []string {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := &complaints{}
	db, err := open(ops.Options{})
	must(err)
	must(db.Update(func(tx T) error {
		b, err := tx.CreateBucket([]byte("top"))
		must(err)
		must(b.Put([]byte("value"), []byte("v")))
		_, err = b.CreateBucket([]byte("bucket"))
		return err
	}))
	top := func(tx T) (B, C) {
		var none B
		b := tx.Bucket([]byte("top"))
		if b == none {
			t.Fatal("a bucket that was committed is not there")
		}
		cursor := b.Cursor()
		cursor.First()
		return b, cursor
	}
	for _, writable := range []bool{false, true} {
		for _, commit := range []bool{false, true} {
			when := map[bool]string{false: "reading", true: "writing"}[writable]
			tx, err := db.Begin(writable)
			must(err)
			b, cursor := top(tx)
			if !writable {
				misuseBucket(c, when, b, cursor)
				misuseTx(c, when, tx)
				c.note(when+": MoveBucket", tx.MoveBucket([]byte("bucket"), b, b))
				c.note(when+": Commit", tx.Commit())
			} else if commit {
				misuseBucket(c, when, b, cursor)
				misuseTx(c, when, tx)
			}
			if commit && writable {
				must(tx.Commit())
			} else {
				must(tx.Rollback())
			}
			when += ", ended"
			misuseTx(c, when, tx)
			misuseBucket(c, when, b, cursor)
			c.note(when+": Commit", tx.Commit())
			c.note(when+": Rollback", tx.Rollback())
		}
	}
	must(db.Close())
	closed(c, "closed", db)
	db, err = open(ops.Options{ReadOnly: true})
	must(err)
	closed(c, "read-only", db)
	must(db.Close())
	return *c
}

// closed calls what a database cannot do that is closed, or read-only.
func closed[D misusedDB[T], T misusedTx[B, C], B ops.Bucket[B, C], C ops.Cursor](c *complaints, when string, db D) {
	nothing := func(T) error { return nil }
	_, err := db.Begin(true)
	c.note(when+": Begin(true)", err)
	tx, err := db.Begin(false)
	c.note(when+": Begin(false)", err)
	if err == nil {
		c.note(when+": Rollback", tx.Rollback())
	}
	c.note(when+": Update", db.Update(nothing))
	c.note(when+": View", db.View(nothing))
	c.note(when+": Batch", db.Batch(nothing))
	if when == "closed" {
		c.note(when+": Close", db.Close())
	}
}

// TestErrors does what must not be done, in all states of a transaction and of
// a database, and compares the errors with those of bbolt.
func TestErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "holdfast.db")
	got := misuse(t, func(o ops.Options) (*holdfast.DB, error) { return OpenHoldfast(file, o) })
	stock := filepath.Join(t.TempDir(), "stock.db")
	want := misuse(t, func(o ops.Options) (*bbolt.DB, error) { return OpenStock(stock, o) })
	if len(want) < 150 {
		t.Errorf("%d calls", len(want))
	}
	if len(got) != len(want) {
		t.Fatalf("%d answers, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s\nbbolt: %s", got[i], want[i])
		}
	}
	if !slices.ContainsFunc(want, func(s string) bool { return s == "reading: Commit: tx not writable" }) {
		t.Errorf("the answers are not errors: %q", want[:20])
	}
}
