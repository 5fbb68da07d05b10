//go:build unix

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"holdfast"
)

// shortened opens a database of many pages on a real file and cuts the file off
// after its metas while it is open, so that no page of a tree can be read.
func shortened(t testing.TB, begin func(*holdfast.DB)) (*holdfast.DB, func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{OnDamage: holdfast.DamageIsError})
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

// A file that another process truncated ended the program by SIGBUS.
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

// A page that cannot be read may be met when the seal of its run is verified,
// whose first page can be.
func TestShortenedUnderSeal(t *testing.T) {
	path := tempPath(t)
	size := os.Getpagesize()
	db := open(t, path, nil)
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, tx, "b")
		put(t, b, "short run", string(make([]byte, 9*size)))
		put(t, createBucket(t, tx, "c"), "long run", string(make([]byte, 99*size)))
	})
	must(t, db.Close())
	data := readFile(t, path)
	runs, _ := runsOf(t, data, size)
	for name, key := range map[string]string{"b": "short run", "c": "long run"} {
		db := open(t, path, &holdfast.Options{OnDamage: holdfast.DamageIsError})
		tx := begin(t, db, false)
		b := tx.Bucket([]byte(name))
		must(t, os.Truncate(path, (int64(b.Root())+5)*int64(size)))
		if b.Get([]byte(key)) != nil {
			t.Errorf("%s: a value", key)
		}
		wantUnreadable(t, key, tx.Err())
		_ = tx.Rollback()
		faults, err := db.Verify(context.Background())
		if err != nil || len(faults) == 0 {
			t.Errorf("%s: a check finds %v, %v", key, faults, err)
		}
		_ = db.Close()
		must(t, os.WriteFile(path, data, 0o600))
	}
	if len(runs) < 4 {
		t.Errorf("%d runs", len(runs))
	}
}

// A page that cannot be read is damage: a call without an error to return, in a reading
// transaction from Begin, panics with that and not with the fault.
func TestShortenedPanics(t *testing.T) {
	path := tempPath(t)
	db := open(t, path, nil)
	fill(t, db, 5000, 100)
	tx := begin(t, db, false)
	b := tx.Bucket([]byte("b"))
	c := b.Cursor()
	must(t, os.Truncate(path, int64(2*os.Getpagesize())))
	for name, read := range map[string]func(){
		"Tx.Bucket": func() { tx.Bucket([]byte("b")) },
		"Get":       func() { b.Get([]byte("00000012")) },
		"First":     func() { c.First() },
		"Seek":      func() { c.Seek([]byte("00000012")) },
		"Stats":     func() { b.Stats() },
		"All":       func() { drain(b.All()) },
	} {
		value := mustPanic(t, read)
		mustNameDamage(t, value, path)
		if err, _ := value.(error); !errors.Is(err, holdfast.ErrUnreadable) {
			t.Errorf("%s panics with %v", name, value)
		}
	}
	wantUnreadable(t, "ForEach", b.ForEach(func(_, _ []byte) error { return nil }))
	wantUnreadable(t, "Rollback", tx.Rollback())
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
		"Scan": func(_ *holdfast.Tx, b, _ *holdfast.Bucket, _ *holdfast.Cursor) error {
			return b.Scan(nil, func(_, _ []byte) bool { return true })
		},
		"Scan, in fn": func(_ *holdfast.Tx, b, _ *holdfast.Bucket, _ *holdfast.Cursor) error {
			return b.Scan(nil, func(k, _ []byte) bool { b.Get(key); return k[0] == 0 })
		},
		"AppendValue": func(_ *holdfast.Tx, b, _ *holdfast.Bucket, _ *holdfast.Cursor) error {
			b.AppendValue(nil, key)
			return nil
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
					_ = db.Close() // which may fail: the file is damaged
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
	for _, f := range faults {
		if pages[f.Page] && !errors.Is(f, holdfast.ErrUnreadable) {
			t.Errorf("besides, %v", f)
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
	update(t, dst, func(*holdfast.Tx) {}) // its writer lock was given back
}

// A panic that is not a fault of the mapping is the caller's, and ends the
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

// A value that lies in another database's mapping could not be read while it was
// committed: the panic went through Commit, which kept the writer lock, and the
// next writer waited for ever.
func TestFaultOfAnotherFileInCommit(t *testing.T) {
	src, cut := shortened(t, nil)
	defer src.Close()
	dst := openNew(t, 0)
	err := src.View(func(r *holdfast.Tx) error {
		v := r.Bucket([]byte("b")).Get([]byte("00000012"))
		return dst.Update(func(w *holdfast.Tx) error {
			b, err := w.CreateBucket([]byte("copy"))
			must(t, err)
			must(t, b.Put([]byte("k"), v))
			cut()
			return nil
		})
	})
	wantUnreadable(t, "View", err)
	must(t, within(t, "the next writer", func() error {
		return dst.Update(func(tx *holdfast.Tx) error {
			if tx.Bucket([]byte("copy")) != nil {
				t.Error("half of the transaction is there")
			}
			return nil
		})
	}))
	checkDB(t, dst)
}

// A fault in the middle of a change was recovered by the caller, or by a View in
// between, and the transaction could be committed, half done.
func TestFaultInAChange(t *testing.T) {
	for _, recovers := range []string{"caller", "view"} {
		db, _ := shortened(t, nil)
		size := fileSize(t, db.Path())
		for i := range 10 { // roots move to low pages, which stay
			update(t, db, func(tx *holdfast.Tx) { must(t, tx.Bucket([]byte("b")).Delete(fmt.Appendf(nil, "%08d", i*50))) })
		}
		err := db.Update(func(tx *holdfast.Tx) error {
			must(t, os.Truncate(db.Path(), size/2/int64(os.Getpagesize())*int64(os.Getpagesize())))
			defer os.Truncate(db.Path(), size)
			if recovers == "view" {
				_ = db.View(func(*holdfast.Tx) error { return tx.DeleteBucket([]byte("b")) })
				return nil
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no fault: the test tests nothing")
					}
				}()
				_ = tx.DeleteBucket([]byte("b"))
			}()
			return nil
		})
		if err == nil {
			t.Errorf("recovered by the %s: the transaction is committed", recovers)
		}
		_ = db.Close()
	}
}

// A write into a value, a fault of the program, was reported as damage of the
// file.
func TestWriteIntoAValue(t *testing.T) {
	db, _ := shortened(t, nil)
	defer db.Close()
	defer func() {
		if _, ok := recover().(runtime.Error); !ok {
			t.Error("the panic is not the runtime's")
		}
	}()
	err := db.View(func(tx *holdfast.Tx) error {
		tx.Bucket([]byte("b")).Get([]byte("00000012"))[0] = 1
		return nil
	})
	t.Errorf("View: %v", err)
}

// A cursor that met a fault read branch elements as leaf elements afterwards.
func TestCursorAfterAFault(t *testing.T) {
	db, _ := shortened(t, nil)
	t.Cleanup(func() { _ = db.Close() })
	for i := range 10 {
		update(t, db, func(tx *holdfast.Tx) { must(t, tx.Bucket([]byte("b")).Delete(fmt.Appendf(nil, "%08d", i))) })
	}
	tx := begin(t, db, false)
	c := tx.Bucket([]byte("b")).Cursor()
	c.First()
	must(t, os.Truncate(db.Path(), fileSize(t, db.Path())/4))
	for n := 0; tx.Err() == nil; n++ {
		if n > 5000 {
			t.Fatal("no fault: the test tests nothing")
		}
		c.Next()
	}
	for _, move := range []func() ([]byte, []byte){c.Next, c.Prev, c.Next, c.Next} {
		if k, _ := move(); k != nil {
			t.Errorf("a key %q after the fault", k)
		}
	}
}

// Keys that go on past the page in which they begin: what compares them reads
// the mapping as well.
func TestShortenedLongKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{PageSize: 4096, OnDamage: holdfast.DamageIsError})
	must(t, err)
	long := func(i int) []byte { return fmt.Appendf(nil, "%030000d", i) }
	update(t, db, func(tx *holdfast.Tx) {
		for i := range 3 {
			b, err := tx.CreateBucket(long(i))
			must(t, err)
			must(t, b.Put(long(i), []byte("v")))
		}
	})
	for _, writable := range []bool{false, true} {
		tx := begin(t, db, writable)
		size := fileSize(t, path)
		for cut := int64(8192); cut < size; cut += 4096 {
			must(t, os.Truncate(path, cut))
			if b := tx.Bucket(long(1)); b != nil {
				for range b.Range(nil, long(5)) {
				}
			}
			_ = tx.ForEach(func(name []byte, b *holdfast.Bucket) error { return nil })
			must(t, os.Truncate(path, size)) // with zeros
		}
		_ = tx.Rollback()
	}
	_ = db.Close()
}

// Close wrote over a file that another process had shortened, made it long again with a
// hole, and said nothing; so did commits without flushes, and Sync.
func TestShortenedIsNotWrittenOver(t *testing.T) {
	for what, use := range map[string]func(*holdfast.DB) error{
		"Close": func(db *holdfast.DB) error { return db.Close() },
		"Sync":  func(db *holdfast.DB) error { return db.Sync() },
		"NoSync": func(db *holdfast.DB) error {
			db.NoSync = true
			return db.Update(func(tx *holdfast.Tx) error { _, err := tx.CreateBucket([]byte("new")); return err })
		},
	} {
		db, cut := shortened(t, nil)
		path := db.Path()
		cut()
		before := readFile(t, path)
		if err := use(db); !errors.Is(err, holdfast.ErrStopped) && !errors.Is(err, holdfast.ErrUnreadable) {
			t.Errorf("%s: %v, want ErrStopped or ErrUnreadable", what, err)
		}
		_ = db.Close()
		if !bytes.Equal(readFile(t, path), before) {
			t.Errorf("%s changed the file", what)
		}
	}
}

// The caller's own read met a page that had been cut off; when the panic was
// looked at the file was long again, and the page could be read. It was taken for
// a write into a value, and the program ended.
func TestShortenedAndLongAgain(t *testing.T) {
	db, cut := shortened(t, nil)
	t.Cleanup(func() { _ = db.Close() })
	size := fileSize(t, db.Path())
	err := db.View(func(tx *holdfast.Tx) error {
		v := tx.Bucket([]byte("b")).Get([]byte("00000012"))
		cut()
		defer os.Truncate(db.Path(), size)
		return fmt.Errorf("read %d", v[0])
	})
	wantUnreadable(t, "View", err)
}
