package append

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"holdfast"
	"holdfast/test/hook"
)

// spillDB is a database of small pages with the buckets a, which holds n, and other.
func spillDB(t *testing.T) *holdfast.DB {
	t.Helper()
	db, err := holdfast.Open(filepath.Join(t.TempDir(), "db"), 0o600, &holdfast.Options{PageSize: 1024, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	hook.WriteEarly(db, 1, 0)
	err = db.Update(func(tx *holdfast.Tx) error {
		for _, name := range []string{"a", "other"} {
			b, err := tx.CreateBucket([]byte(name))
			if err != nil {
				return err
			}
			if err := fillBucket(b, 0, 100); err != nil {
				return err
			}
		}
		n, err := tx.Bucket([]byte("a")).CreateBucket([]byte("00000050n"))
		if err != nil {
			return err
		}
		return n.Put([]byte("k"), []byte("value of n"))
	})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func fillBucket(b *holdfast.Bucket, from, to int) error {
	for i := from; i < to; i++ {
		if err := b.Put(fmt.Appendf(nil, "%08d", i), fmt.Appendf(nil, "%0100d", i)); err != nil {
			return err
		}
	}
	return nil
}

// mustSpill fails unless something was written.
func mustSpill(tx *holdfast.Tx) error {
	if done, err := tx.Spill(0); err != nil || !done {
		return fmt.Errorf("spilled: %v, %w", done, err)
	}
	return nil
}

// TestSpillInline: an inline bucket stays as it was where the page that it lies in was written early
// and given up since.
func TestSpillInline(t *testing.T) {
	db := spillDB(t)
	err := db.Update(func(tx *holdfast.Tx) error {
		a, other := tx.Bucket([]byte("a")), tx.Bucket([]byte("other"))
		if err := errors.Join(fillBucket(a, 45, 55), mustSpill(tx)); err != nil {
			return err
		}
		n := a.Bucket([]byte("00000050n"))
		for range 3 {
			if err := errors.Join(fillBucket(a, 45, 55), mustSpill(tx), fillBucket(other, 0, 1000), mustSpill(tx)); err != nil {
				return err
			}
			value, _, _, err := hook.Bucket(n).Lookup([]byte("k")) // after Get nothing is used again
			if string(value) != "value of n" {
				return fmt.Errorf("the value in n is %.100q, %w", value, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, db)
}

// A value that was put into the root bucket was the caller's memory still after a Spill that says that it needs it no longer: it
// became what the caller wrote there next.
func TestSpillRootValues(t *testing.T) {
	db := spillDB(t)
	key := func(i int) []byte { return fmt.Appendf(nil, "v%04d", i) }
	root := func(tx *holdfast.Tx) *holdfast.Bucket { return tx.Cursor().Bucket() }
	update := func(change func(put func(i int, with byte) error, tx *holdfast.Tx) error) {
		t.Helper()
		err := db.Update(func(tx *holdfast.Tx) error {
			return change(func(i int, with byte) error {
				value := bytes.Repeat([]byte{with}, 50)
				if err := root(tx).Put(key(i), value); err != nil {
					return err
				}
				if err := mustSpill(tx); err != nil {
					return err
				}
				clear(value)
				return nil
			}, tx)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	update(func(put func(int, byte) error, tx *holdfast.Tx) error { // one leaf, with its elements in memory
		return put(0, 'a')
	})
	update(func(put func(int, byte) error, tx *holdfast.Tx) error {
		for i := 1; i < 200; i++ {
			if err := root(tx).Put(key(i), bytes.Repeat([]byte{'b'}, 50)); err != nil {
				return err
			}
		}
		return nil
	})
	update(func(put func(int, byte) error, tx *holdfast.Tx) error { // values that replace some of a page, in many leaves
		return errors.Join(put(3, 'c'), put(150, 'c'))
	})
	update(func(put func(int, byte) error, tx *holdfast.Tx) error { // and elements between these
		return errors.Join(put(300, 'd'), root(tx).Delete(key(60)), put(61, 'd'))
	})
	want := map[int]byte{0: 'a', 3: 'c', 150: 'c', 300: 'd', 61: 'd'}
	err := db.View(func(tx *holdfast.Tx) error {
		for i := range 301 {
			w, other := want[i]
			switch {
			case !other && (i == 60 || i >= 200):
				continue
			case !other:
				w = 'b'
			}
			if got := root(tx).Get(key(i)); !bytes.Equal(got, bytes.Repeat([]byte{w}, 50)) {
				t.Errorf("%s is %q", key(i), got)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSpillReuses sees that pages which were written early and replaced are used again, unless a
// value was read that may lie in one.
func TestSpillReuses(t *testing.T) {
	pages := func(read bool) (n int64) {
		db := spillDB(t)
		err := db.Update(func(tx *holdfast.Tx) error {
			b := tx.Bucket([]byte("other"))
			for range 50 {
				if err := errors.Join(fillBucket(b, 0, 100), mustSpill(tx)); err != nil {
					return err
				}
				if read {
					b.Get([]byte("00000000"))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		mustBeSound(t, db)
		err = db.View(func(tx *holdfast.Tx) error { n = tx.Size() / 1024; return nil })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// The bucket has some 15 pages; the transaction writes them anew 50 times.
	if n := pages(false); n > 120 {
		t.Errorf("%d pages where nothing was read", n)
	}
	if n := pages(true); n < 500 {
		t.Errorf("%d pages where values were read, which must stay", n)
	}
}

// TestSpillCursor: a cursor goes on where it stood, and a deleted bucket is an empty one.
func TestSpillCursor(t *testing.T) {
	db := spillDB(t)
	err := db.Update(func(tx *holdfast.Tx) error {
		a, other := tx.Bucket([]byte("a")), tx.Bucket([]byte("other"))
		c := other.Cursor()
		i := 0
		for k, v := c.First(); k != nil; k, v = c.Next() {
			if want := fmt.Sprintf("%08d", i); string(k) != want || !strings.HasSuffix(string(v), want) {
				return fmt.Errorf("element %d is %q: %q", i, k, v)
			}
			if err := errors.Join(other.Put(bytes.Clone(k), v), fillBucket(a, i, i+1), mustSpill(tx)); err != nil {
				return err
			}
			i++
		}
		if i != 100 {
			return fmt.Errorf("%d elements, want 100", i)
		}
		if err := errors.Join(fillBucket(other, 0, 10), tx.DeleteBucket([]byte("other")), mustSpill(tx), fillBucket(a, 0, 50)); err != nil {
			return err
		}
		for i := range 100 {
			if v := other.Get(fmt.Appendf(nil, "%08d", i)); v != nil {
				return fmt.Errorf("a deleted bucket has the value %q", v)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, db)
}

// TestSpillBounds: a small transaction is not written, and what a reading or an ended one answers.
func TestSpillBounds(t *testing.T) {
	db := spillDB(t)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tx, err := db.Begin(true)
	check(err)
	if done, err := tx.Spill(0); done || err != nil {
		t.Errorf("nothing was changed, and %v, %v", done, err)
	}
	check(fillBucket(tx.Bucket([]byte("a")), 0, 10))
	if done, err := tx.Spill(1 << 20); done || err != nil {
		t.Errorf("a few keys, and %v, %v", done, err)
	}
	check(mustSpill(tx))
	if done, err := tx.Spill(0); done || err != nil {
		t.Errorf("nothing was changed since, and %v, %v", done, err)
	}
	check(tx.Rollback())
	if _, err := tx.Spill(0); !errors.Is(err, holdfast.ErrTxClosed) {
		t.Errorf("ended: %v", err)
	}
	tx, err = db.Begin(false)
	check(err)
	if _, err := tx.Spill(0); !errors.Is(err, holdfast.ErrTxNotWritable) {
		t.Errorf("reading: %v", err)
	}
	check(tx.Rollback())
	mustBeSound(t, db)
}

// liveHeap is how many bytes of the heap are in use.
func liveHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestSpillMemory sees that the memory of a transaction which puts keys in no order does not
// depend on how many.
func TestSpillMemory(t *testing.T) {
	const limit = 4 << 20
	peak := func(n int) (most int64) {
		db, err := holdfast.Open(filepath.Join(t.TempDir(), "db"), 0o600, &holdfast.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		before := liveHeap()
		err = db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucket([]byte("b"))
			if err != nil {
				return err
			}
			for i := range n {
				if err := b.Put(fmt.Appendf(nil, "%016x", uint64(i)*0x9e3779b97f4a7c15), fmt.Appendf(nil, "%0100d", i)); err != nil {
					return err
				}
				if i%(n/16) == n/16-1 {
					most = max(most, liveHeap()-before)
				}
				if _, err := tx.Spill(limit); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		mustBeSound(t, db)
		return most
	}
	few, many := peak(50_000), peak(200_000)
	t.Logf("%d bytes for 50,000 keys, %d for 200,000", few, many)
	if many > few*5/4 || many > 2*limit {
		t.Errorf("%d bytes for 50,000 keys, %d for 200,000: at most %d, and a quarter more", few, many, 2*limit)
	}
}
