package append

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
	"holdfast/test/hook"
)

// In all modes a commit of what was appended is flushed twice at most, and is there after
// the file was opened again, also as bbolt finds it.
func TestAppendModes(t *testing.T) {
	for name, options := range map[string]holdfast.Options{
		"full":     {},
		"periodic": {Durability: holdfast.Periodic},
		"none":     {Durability: holdfast.None},
		"nosync":   {NoSync: true},
		"strict":   {StrictCompat: true},
		"unsealed": {NoSeals: true},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem("mem")
			flushes := 0
			options.SettleDelay = -1
			open := func() *holdfast.DB {
				db, err := bridge.Open(vfs.NewInject(mem.Open(), func(op vfs.Op) error {
					if op.Kind == vfs.KindSync {
						flushes++
					}
					return nil
				}), &options)
				if err != nil {
					t.Fatal(err)
				}
				return db
			}
			db := open()
			from := 0
			for range 4 {
				soundUpdate(t, db, func(tx *holdfast.Tx) error { // an ordinary one before
					b, err := tx.CreateBucketIfNotExists([]byte("a"))
					if err != nil {
						return err
					}
					return b.Put([]byte("k"), fmt.Append(nil, from))
				})
				if err := db.Sync(); err != nil {
					t.Fatal(err)
				}
				flushes = 0
				soundUpdate(t, db, func(tx *holdfast.Tx) error {
					b, err := tx.CreateBucketIfNotExists([]byte("b"))
					for end := from + 200; from < end && err == nil; from++ {
						err = b.Append(appendKey(from), appendValue(from, appendSize("mixed", from)))
					}
					return err
				})
				want := 2
				if options.NoSync || options.Durability == holdfast.None {
					want = 0
				}
				if flushes != want {
					t.Errorf("%d flushes, want %d", flushes, want)
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				db = open()
				err := db.View(func(tx *holdfast.Tx) error {
					wantAppended(t, tx.Bucket([]byte("b")), "mixed", from)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The mode at the first Append is that of the commit.
func TestAppendKeepsItsMode(t *testing.T) {
	db := appendDB(t, nil)
	before := hook.Pager(db).Counts().Flushes.Load()
	soundUpdate(t, db, func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		if err == nil {
			err = b.Append([]byte("k"), make([]byte, 1<<20)) // it is written now
		}
		db.NoSync = true
		return err
	})
	flushes := hook.Pager(db).Counts().Flushes.Load() - before
	db.NoSync = false
	if err := db.Sync(); err != nil {
		t.Fatal(err)
	}
	if flushes < 2 { // those of the pages and of the meta
		t.Errorf("%d flushes in the transaction", flushes)
	}
}

// What a transaction holds does not grow with what it appends.
func TestAppendHoldsLittle(t *testing.T) {
	db := appendDB(t, &holdfast.Options{NoSync: true})
	for _, size := range []int{65488, 1000} {
		soundUpdate(t, db, func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucket(fmt.Append(nil, size))
			if err != nil {
				return err
			}
			value := make([]byte, size)
			heap := func() uint64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			before := heap()
			for i := range 96 << 20 / size {
				if err := b.Append(appendKey(i), value); err != nil {
					return err
				}
			}
			if after := heap(); after > before+16<<20 {
				t.Errorf("%d bytes are held for 96 MiB of values of %d", after-before, size)
			}
			return nil
		})
	}
}

// Pages that a transaction has appended and given up are free for it, and values that
// it has read stay as they are.
func TestAppendGivenUp(t *testing.T) {
	for name, how := range writers {
		t.Run(name, func(t *testing.T) { testAppendGivenUp(t, how.behind) })
	}
}

func testAppendGivenUp(t *testing.T, behind int8) {
	db := appendDB(t, nil)
	hook.WriteEarly(db, 64<<10, behind)
	fill := func(tx *holdfast.Tx, name string, letter byte) (*holdfast.Bucket, error) {
		b, err := tx.CreateBucket([]byte(name))
		for i := 0; i < 300 && err == nil; i++ {
			err = b.Append(appendKey(i), bytes.Repeat([]byte{letter}, 100+i*37%12000))
		}
		return b, err
	}
	size := int64(0)
	soundUpdate(t, db, func(tx *holdfast.Tx) error {
		for i := range 20 {
			if _, err := fill(tx, "b", byte(i)); err != nil {
				return err
			}
			if i == 0 {
				size = int64(hook.HighWater(tx))
			}
			if err := tx.DeleteBucket([]byte("b")); err != nil {
				return err
			}
		}
		if now := int64(hook.HighWater(tx)); now > size+size/4 {
			t.Errorf("%d pages are in use, of which one bucket takes %d", now, size)
		}
		return nil
	})
	soundUpdate(t, db, func(tx *holdfast.Tx) error {
		b, err := fill(tx, "b", 'b')
		if err != nil {
			return err
		}
		var values [][]byte
		for i := range 300 {
			values = append(values, b.Get(appendKey(i)))
		}
		if err := tx.DeleteBucket([]byte("b")); err != nil {
			return err
		}
		c, err := fill(tx, "c", 'c')
		if err != nil {
			return err
		}
		for i, v := range values {
			if !bytes.Equal(v, bytes.Repeat([]byte("b"), 100+i*37%12000)) {
				t.Fatalf("value %d was read, and is another", i)
			}
			if err := c.Put(appendKey(1000+i), v); err != nil { // which keeps it
				return err
			}
		}
		_, err = fill(tx, "d", 'd')
		return err
	})
	err := db.View(func(tx *holdfast.Tx) error {
		for i := range 300 {
			if !bytes.Equal(tx.Bucket([]byte("c")).Get(appendKey(1000+i)), bytes.Repeat([]byte("b"), 100+i*37%12000)) {
				t.Fatalf("value %d was read and put, and is another", i)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Rolled back, what was appended and written leaves the file and its free pages as they
// were, and readers see what they saw.
func TestAppendRolledBack(t *testing.T) {
	for name, how := range writers {
		t.Run(name, func(t *testing.T) { testAppendRolledBack(t, how) })
	}
}

func testAppendRolledBack(t *testing.T, f appendedFile) {
	db := appendDB(t, nil)
	if err := f.commit(db, 1); err != nil {
		t.Fatal(err)
	}
	hook.WriteEarly(db, 1, f.behind)
	if err := db.Sync(); err != nil {
		t.Fatal(err)
	}
	before := db.Stats()
	reader, err := db.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := f.rolledBack(db); err != nil {
			t.Fatal(err)
		}
		after := db.Stats()
		if after.FreePageN != before.FreePageN || after.PendingPageN != before.PendingPageN {
			t.Errorf("%d free and %d pending pages, before %d and %d", after.FreePageN, after.PendingPageN, before.FreePageN, before.PendingPageN)
		}
		mustBeSound(t, db)
	}
	if reader.Bucket([]byte("b")) == nil || reader.Rollback() != nil {
		t.Error("the reader has lost what it saw")
	}
	if n, err := f.holds(db); n != 1 || err != nil {
		t.Error(n, err)
	}
}

// Append beside AutoVacuum's work, and in one transaction with others.
func TestAppendVacuumAndBatch(t *testing.T) {
	db := appendDB(t, nil)
	f := &appendedFile{}
	for n := 1; n <= 8; n++ {
		if err := f.commit(db, n); err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 {
			if _, err := db.Vacuum(t.Context(), holdfast.VacuumOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := f.holds(db); got != n || err != nil {
			t.Fatal(got, err)
		}
	}
	db.MaxBatchSize = 4
	errs := make(chan error)
	for i := range 8 {
		go func() {
			errs <- db.Batch(func(tx *holdfast.Tx) error {
				b, err := tx.CreateBucketIfNotExists(fmt.Append(nil, "batch", i))
				for j := 0; j < 20 && err == nil; j++ {
					err = b.Append(appendKey(j), make([]byte, 5000))
				}
				return err
			})
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	mustBeSound(t, db)
}

// A transaction that reads changes nothing, nor does one that has ended.
func TestAppendErrors(t *testing.T) {
	db := appendDB(t, nil)
	var ended *holdfast.Bucket
	soundUpdate(t, db, func(tx *holdfast.Tx) (err error) {
		ended, err = tx.CreateBucket([]byte("b"))
		return err
	})
	if err := ended.Append([]byte("k"), nil); err != holdfast.ErrTxClosed {
		t.Error(err)
	}
	err := db.View(func(tx *holdfast.Tx) error { return tx.Bucket([]byte("b")).Append([]byte("k"), nil) })
	if err != holdfast.ErrTxNotWritable {
		t.Error(err)
	}
	soundUpdate(t, db, func(tx *holdfast.Tx) error {
		b := tx.Bucket([]byte("b"))
		for _, c := range []struct {
			key  string
			want error
		}{
			{"", holdfast.ErrKeyRequired}, {strings.Repeat("k", holdfast.MaxKeySize+1), holdfast.ErrKeyTooLarge},
			{"k", nil}, {"k", holdfast.ErrUnordered}, {"j", holdfast.ErrUnordered}, {"ka", nil},
		} {
			if err := b.Append([]byte(c.key), nil); err != c.want {
				t.Errorf("%.5s: %v, want %v", c.key, err, c.want)
			}
		}
		if _, err := b.CreateBucket([]byte("l")); err != nil {
			return err
		}
		if err := b.Append([]byte("l"), nil); err != holdfast.ErrUnordered {
			t.Errorf("a bucket's key: %v", err)
		}
		in := b.Bucket([]byte("l"))
		if err := b.DeleteBucket([]byte("l")); err != nil {
			return err
		}
		if err := in.Append([]byte("l"), nil); err != holdfast.ErrBucketNotFound {
			t.Errorf("in a deleted bucket: %v", err)
		}
		return b.Append([]byte("l"), nil)
	})
}

func TestBeforeCommit(t *testing.T) {
	db := appendDB(t, nil)
	var order []string
	failure := errors.New("no")
	put := func(tx *holdfast.Tx, key string) error {
		order = append(order, key)
		b, err := tx.CreateBucketIfNotExists([]byte("b"))
		if err != nil {
			return err
		}
		return b.Put([]byte(key), nil)
	}
	soundUpdate(t, db, func(tx *holdfast.Tx) error {
		tx.OnCommit(func() { order = append(order, "committed") })
		tx.BeforeCommit(func() error {
			tx.BeforeCommit(func() error { return put(tx, "third") })
			return put(tx, "first")
		})
		tx.BeforeCommit(func() error { return put(tx, "second") })
		return nil
	})
	if got := fmt.Sprint(order); got != "[first second third committed]" {
		t.Error(got)
	}
	tx, err := db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	tx.BeforeCommit(func() error { t.Error("called for a rollback"); return nil })
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *holdfast.Tx) error {
		tx.BeforeCommit(func() error { return errors.Join(put(tx, "given up"), failure) })
		tx.BeforeCommit(func() error { t.Error("called behind one that failed"); return nil })
		return nil
	})
	if !errors.Is(err, failure) {
		t.Error(err)
	}
	for _, what := range []string{"a panic", "managed tx commit not allowed"} {
		func() {
			defer func() {
				if got := recover(); got != what {
					t.Errorf("recovered %v, want %s", got, what)
				}
			}()
			tx, err := db.Begin(true)
			if err != nil {
				t.Fatal(err)
			}
			tx.BeforeCommit(func() error {
				if what == "a panic" {
					panic(what)
				}
				return tx.Commit()
			})
			_ = tx.Commit()
		}()
		soundUpdate(t, db, func(tx *holdfast.Tx) error { // the writer lock is free again
			if tx.Bucket([]byte("b")).Get([]byte("given up")) != nil {
				t.Error("what failed is there")
			}
			return nil
		})
	}
	// In a Batch the others are not its business.
	db.MaxBatchSize = 3
	errs := make(chan error)
	for i := range 3 {
		go func() {
			errs <- db.Batch(func(tx *holdfast.Tx) error {
				tx.BeforeCommit(func() error {
					if i == 1 {
						return failure
					}
					b, err := tx.CreateBucketIfNotExists([]byte("batch"))
					if err != nil {
						return err
					}
					return b.Put(fmt.Append(nil, i), nil)
				})
				return nil
			})
		}()
	}
	failed := 0
	for range 3 {
		if err := <-errs; errors.Is(err, failure) {
			failed++
		} else if err != nil {
			t.Error(err)
		}
	}
	if n := 0; failed != 1 || db.View(func(tx *holdfast.Tx) error {
		n = tx.Bucket([]byte("batch")).Stats().KeyN
		return nil
	}) != nil || n != 2 {
		t.Errorf("%d failed", failed)
	}
}
