package append

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"holdfast"
)

// TestScan: the keys from one on, in order, until fn has enough; nested buckets have no value.
func TestScan(t *testing.T) {
	db := spillDB(t)
	seen := func(b *holdfast.Bucket, from []byte, most int) (keys []string, err error) {
		err = b.Scan(from, func(k, v []byte) bool {
			nested := string(k) == "00000050n"
			if (v == nil) != nested || !nested && !bytes.HasSuffix(v, k) {
				t.Errorf("%q has %q", k, v)
			}
			keys = append(keys, string(k))
			return len(keys) < most
		})
		return keys, err
	}
	for _, begin := range []func(fn func(*holdfast.Tx) error) error{db.View, db.Update, func(fn func(*holdfast.Tx) error) error {
		tx, err := db.Begin(true)
		if err != nil {
			return err
		}
		return errors.Join(fn(tx), tx.Rollback())
	}} {
		err := begin(func(tx *holdfast.Tx) error {
			a := tx.Bucket([]byte("a"))
			for _, c := range []struct {
				from              []byte
				most, want        int
				first, last, gave string
			}{
				{nil, 1000, 101, "00000000", "00000099", ""},
				{[]byte("00000050"), 3, 3, "00000050", "00000051", ""},
				{[]byte("00000098x"), 1000, 1, "00000099", "00000099", ""},
				{[]byte("x"), 1000, 0, "", "", ""},
			} {
				keys, err := seen(a, c.from, c.most)
				if err != nil || len(keys) != c.want || c.want > 0 && (keys[0] != c.first || keys[c.want-1] != c.last) {
					t.Errorf("from %q: %q, %v", c.from, keys, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	var ended *holdfast.Bucket
	_ = db.View(func(tx *holdfast.Tx) error { ended = tx.Bucket([]byte("a")); return nil })
	if keys, err := seen(ended, nil, 1); !errors.Is(err, holdfast.ErrTxClosed) || keys != nil {
		t.Errorf("%q, %v", keys, err)
	}
}

// TestScanKeepsNoPage sees that pages which Spill has replaced are used again though they were scanned.
func TestScanKeepsNoPage(t *testing.T) {
	sizes := map[string]int64{}
	for _, how := range []string{"scanned", "iterated over"} {
		db := spillDB(t)
		err := db.Update(func(tx *holdfast.Tx) error {
			for range 30 {
				b := tx.Bucket([]byte("other"))
				if err := errors.Join(fillBucket(b, 0, 100), mustSpill(tx)); err != nil {
					return err
				}
				n := 0
				if how == "scanned" {
					if err := b.Scan(nil, func([]byte, []byte) bool { n++; return true }); err != nil {
						return err
					}
				} else {
					for range b.All() {
						n++
					}
				}
				if n != 100 {
					return fmt.Errorf("%d elements", n)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = db.View(func(tx *holdfast.Tx) error { sizes[how] = tx.Size(); return nil })
	}
	if sizes["scanned"]*2 > sizes["iterated over"] {
		t.Errorf("the file has %v bytes", sizes)
	}
}

// TestScanCallsBack: fn may read, scan others, and panic, in a transaction that is managed and in one that is not.
func TestScanCallsBack(t *testing.T) {
	db := spillDB(t)
	pairs := func(tx *holdfast.Tx) (n int, err error) {
		a, b := tx.Bucket([]byte("a")), tx.Bucket([]byte("other"))
		err = a.Scan(nil, func(k, v []byte) bool {
			if !bytes.Equal(a.Get(k), v) {
				t.Errorf("%q is another", k)
			}
			if err := b.Scan(k, func([]byte, []byte) bool { n++; return true }); err != nil {
				t.Error(err)
			}
			return true
		})
		return n, err
	}
	panics := func(tx *holdfast.Tx) (recovered any) {
		defer func() { recovered = recover() }()
		return tx.Bucket([]byte("a")).Scan(nil, func([]byte, []byte) bool { panic("of fn") })
	}
	use := func(tx *holdfast.Tx) error {
		if tx.Writable() {
			if err := errors.Join(fillBucket(tx.Bucket([]byte("other")), 0, 100), mustSpill(tx)); err != nil {
				return err
			}
		}
		before, err := pairs(tx)
		if err != nil {
			return err
		}
		if recovered := panics(tx); recovered != "of fn" {
			t.Errorf("recovered %v", recovered)
		}
		if after, err := pairs(tx); err != nil || after != before || tx.Writable() && before == 0 {
			t.Errorf("%d and %d pairs, %v", before, after, err)
		}
		return tx.Err()
	}
	for _, writable := range []bool{false, true} {
		managed := db.View
		if writable {
			managed = db.Update
		}
		if err := managed(use); err != nil {
			t.Error(err)
		}
		tx, err := db.Begin(writable)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(use(tx), tx.Rollback()); err != nil {
			t.Error(err)
		}
	}
}
