//go:build unix

package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"holdfast"
)

// shortened opens a database of many pages on a real file and cuts the file off
// behind its metas while it is open, so that no page of a tree can be read.
func shortened(t testing.TB, begin func(*holdfast.DB)) (*holdfast.DB, func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := holdfast.Open(path, 0o600, nil)
	must(t, err)
	fill(t, db, 5000, 100)
	update(t, db, func(tx *holdfast.Tx) {
		b, err := tx.CreateBucket([]byte("nests"))
		must(t, err)
		for i := range 200 {
			_, err := b.CreateBucket(fmt.Append(nil, "bucket", i))
			must(t, err)
		}
	})
	if begin != nil {
		begin(db)
	}
	size := int64(2 * os.Getpagesize())
	return db, func() { must(t, os.Truncate(path, size)) }
}

func wantUnreadable(t *testing.T, what string, err error) {
	t.Helper()
	var damage *holdfast.CorruptError
	if !errors.Is(err, holdfast.ErrUnreadable) || !errors.As(err, &damage) || damage.Page < 2 {
		t.Errorf("%s: %v, want ErrUnreadable with a page", what, err)
	}
}

// A file that somebody truncated ended the program by SIGBUS.
func TestShortenedUnderView(t *testing.T) {
	db, cut := shortened(t, nil)
	defer db.Close()
	name, key := []byte("b"), []byte("00000012")
	var kept []byte
	err := db.View(func(tx *holdfast.Tx) error {
		kept = tx.Bucket(name).Get(key)
		cut()
		sum := byte(0)
		for _, b := range kept { // our caller's own read
			sum += b
		}
		return fmt.Errorf("read %d", sum)
	})
	wantUnreadable(t, "reading a value", err)
	for what, fn := range map[string]func(*holdfast.Tx) error{
		"Get":     func(tx *holdfast.Tx) error { tx.Bucket(name).Get(key); return nil },
		"ForEach": func(tx *holdfast.Tx) error { return tx.ForEach(func([]byte, *holdfast.Bucket) error { return nil }) },
		"Cursor":  func(tx *holdfast.Tx) error { tx.Cursor().Last(); return nil },
		"Inspect": func(tx *holdfast.Tx) error { tx.Inspect(); return nil },
	} {
		wantUnreadable(t, what, db.View(fn))
		wantUnreadable(t, what+" in Update", db.Update(fn))
		wantUnreadable(t, what+" in Batch", db.Batch(fn))
	}
	wantUnreadable(t, "Put", db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		return b.Put(key, key)
	}))
	if readers := db.Stats().OpenTxN; readers != 0 {
		t.Errorf("%d transactions are still open", readers)
	}
}

// A transaction from Begin is ready for faults in each of its calls.
func TestShortenedUnderBegin(t *testing.T) {
	name, key := []byte("b"), []byte("00000012")
	calls := map[string]func(tx *holdfast.Tx, b, nests *holdfast.Bucket, c *holdfast.Cursor) error{
		"Tx.Bucket":  func(tx *holdfast.Tx, _, _ *holdfast.Bucket, _ *holdfast.Cursor) error { tx.Bucket(key); return nil },
		"Tx.Inspect": func(tx *holdfast.Tx, _, _ *holdfast.Bucket, _ *holdfast.Cursor) error { tx.Inspect(); return nil },
		"Tx.Page": func(tx *holdfast.Tx, _, _ *holdfast.Bucket, _ *holdfast.Cursor) error {
			_, err := tx.Page(7)
			return err
		},
		"Get":    func(_ *holdfast.Tx, b, _ *holdfast.Bucket, _ *holdfast.Cursor) error { b.Get(key); return nil },
		"Bucket": func(_ *holdfast.Tx, _, n *holdfast.Bucket, _ *holdfast.Cursor) error { n.Bucket(key); return nil },
		"Put":    func(_ *holdfast.Tx, b, _ *holdfast.Bucket, _ *holdfast.Cursor) error { return b.Put(key, key) },
		"Delete": func(_ *holdfast.Tx, b, _ *holdfast.Bucket, _ *holdfast.Cursor) error { return b.Delete(key) },
		"CreateBucket": func(_ *holdfast.Tx, _, n *holdfast.Bucket, _ *holdfast.Cursor) error {
			_, err := n.CreateBucket(key)
			return err
		},
		"DeleteBucket": func(_ *holdfast.Tx, _, n *holdfast.Bucket, _ *holdfast.Cursor) error {
			return n.DeleteBucket([]byte("bucket1"))
		},
		"MoveBucket": func(_ *holdfast.Tx, b, n *holdfast.Bucket, _ *holdfast.Cursor) error {
			return n.MoveBucket([]byte("bucket1"), b)
		},
		"Stats": func(_ *holdfast.Tx, b, _ *holdfast.Bucket, _ *holdfast.Cursor) error { b.Stats(); return nil },
		"ForEach": func(_ *holdfast.Tx, b, _ *holdfast.Bucket, _ *holdfast.Cursor) error {
			return b.ForEach(func(_, _ []byte) error { return nil })
		},
		"ForEachBucket": func(_ *holdfast.Tx, b, _ *holdfast.Bucket, _ *holdfast.Cursor) error {
			return b.ForEachBucket(func([]byte) error { return nil })
		},
		"First":         func(_ *holdfast.Tx, _, _ *holdfast.Bucket, c *holdfast.Cursor) error { c.First(); return nil },
		"Last":          func(_ *holdfast.Tx, _, _ *holdfast.Bucket, c *holdfast.Cursor) error { c.Last(); return nil },
		"Next":          func(_ *holdfast.Tx, _, _ *holdfast.Bucket, c *holdfast.Cursor) error { c.Next(); return nil },
		"Prev":          func(_ *holdfast.Tx, _, _ *holdfast.Bucket, c *holdfast.Cursor) error { c.Prev(); return nil },
		"Seek":          func(_ *holdfast.Tx, _, _ *holdfast.Bucket, c *holdfast.Cursor) error { c.Seek(key); return nil },
		"Cursor.Delete": func(_ *holdfast.Tx, _, _ *holdfast.Bucket, c *holdfast.Cursor) error { return c.Delete() },
		"Backward": func(_ *holdfast.Tx, b, _ *holdfast.Bucket, _ *holdfast.Cursor) error {
			for range b.Backward() {
				return errors.New("read a key")
			}
			return nil
		},
	}
	for what, call := range calls {
		for _, writable := range []bool{false, true} {
			t.Run(fmt.Sprint(what, " writable ", writable), func(t *testing.T) {
				var tx *holdfast.Tx
				db, cut := shortened(t, func(db *holdfast.DB) {
					var err error
					tx, err = db.Begin(writable)
					must(t, err)
				})
				b, nests := tx.Bucket(name), tx.Bucket([]byte("nests"))
				c := b.Cursor()
				c.Seek([]byte("00002500"))
				cut()
				err := call(tx, b, nests, c)
				if errors.Is(err, holdfast.ErrTxNotWritable) {
					must(t, tx.Rollback())
					must(t, db.Close())
					return
				}
				if err != nil {
					wantUnreadable(t, "the call", err)
				}
				wantUnreadable(t, "Tx.Err", tx.Err())
				if writable {
					wantUnreadable(t, "Commit", tx.Commit())
				} else {
					wantUnreadable(t, "Rollback", tx.Rollback())
				}
				_ = db.Close() // which may fail: the file is damaged
			})
		}
	}
}

// Commit reads the pages that it changes.
func TestShortenedUnderCommit(t *testing.T) {
	db, cut := shortened(t, nil)
	defer db.Close()
	tx, err := db.Begin(true)
	must(t, err)
	b := tx.Bucket([]byte("b"))
	for i := range 5000 {
		must(t, b.Delete(fmt.Appendf(nil, "%08d", i)))
	}
	cut()
	if err := tx.Commit(); !errors.Is(err, holdfast.ErrUnreadable) && !errors.Is(err, holdfast.ErrStopped) {
		t.Errorf("Commit: %v", err)
	}
}

// A commit on a shortened file was acknowledged, whatever was missing below it.
func TestShortenedStopsTheWriter(t *testing.T) {
	db, cut := shortened(t, nil)
	defer db.Close()
	tx, err := db.Begin(true)
	must(t, err)
	_, err = tx.CreateBucket([]byte("new"))
	must(t, err)
	cut()
	if err := tx.Commit(); !errors.Is(err, holdfast.ErrStopped) && !errors.Is(err, holdfast.ErrUnreadable) {
		t.Errorf("Commit: %v", err)
	}

	db2, _ := shortened(t, nil)
	defer db2.Close()
	info, err := os.Stat(db2.Path())
	must(t, err)
	update(t, db2, func(*holdfast.Tx) {})
	must(t, os.Truncate(db2.Path(), info.Size()-1)) // nothing that anybody reads
	for range 2 {
		err = db2.Update(func(tx *holdfast.Tx) error { _, err := tx.CreateBucket([]byte("new")); return err })
		if !errors.Is(err, holdfast.ErrStopped) {
			t.Errorf("Update: %v, want ErrStopped", err)
		}
	}
	must(t, db2.View(readAll))
}

// A check reports each page that cannot be read and goes on.
func TestShortenedUnderCheck(t *testing.T) {
	db, _ := shortened(t, nil)
	defer db.Close()
	for i := range 10 { // so that roots and branches move to low pages
		update(t, db, func(tx *holdfast.Tx) {
			b := tx.Bucket([]byte("b"))
			for j := range 100 {
				must(t, b.Delete(fmt.Appendf(nil, "%08d", 100*i+j)))
			}
		})
	}
	end := int64(0)
	view(t, db, func(tx *holdfast.Tx) { end = tx.Size() })
	faults, err := db.Verify(context.Background())
	if err != nil || len(faults) != 0 {
		t.Fatalf("before: %v, %v", faults, err)
	}
	must(t, os.Truncate(db.Path(), end/2/int64(os.Getpagesize())*int64(os.Getpagesize())))
	faults, err = db.Verify(context.Background())
	must(t, err)
	pages := map[holdfast.Pgid]bool{}
	for _, f := range faults {
		if errors.Is(f, holdfast.ErrUnreadable) {
			pages[f.Page] = true
		}
	}
	if len(pages) < 10 {
		t.Errorf("%d pages are reported as unreadable, and %d faults", len(pages), len(faults))
	}
	err = db.View(func(tx *holdfast.Tx) error { return tx.Copy(io.Discard) })
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Copy: %v", err)
	}
	dst := openNew(t, 0)
	wantUnreadable(t, "Compact", holdfast.Compact(dst, db, 1<<16))
	update(t, dst, func(*holdfast.Tx) {}) // its writer's turn was given back
}

// A panic that is no fault of the mapping is the caller's, and ends the
// transaction.
func TestOtherPanicsPass(t *testing.T) {
	db := openNew(t, 0)
	fill(t, db, 10, 10)
	for what, run := range map[string]func(func(*holdfast.Tx) error) error{"View": db.View, "Update": db.Update} {
		func() {
			defer func() {
				if r := recover(); r != "on purpose" {
					t.Errorf("%s: recovered %v", what, r)
				}
			}()
			_ = run(func(*holdfast.Tx) error { panic("on purpose") })
		}()
	}
	tx, err := db.Begin(true)
	must(t, err)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = tx.Bucket([]byte("b")).ForEachBucket(func([]byte) error { return nil })
		_ = tx.ForEach(func([]byte, *holdfast.Bucket) error { var p *int; *p = 1; return nil })
	}()
	must(t, tx.Rollback())
	if n := db.Stats().OpenTxN; n != 0 {
		t.Errorf("%d transactions are open", n)
	}
}
