package holdfast

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

// TestScan: the keys from one on, in order, until fn has enough; nested buckets have no value.
func TestScan(t *testing.T) {
	db := spillDB(t)
	seen := func(b *Bucket, from []byte, most int) (keys []string, err error) {
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
	for _, begin := range []func(fn func(*Tx) error) error{db.View, db.Update, func(fn func(*Tx) error) error {
		tx, err := db.Begin(true)
		if err != nil {
			return err
		}
		return errors.Join(fn(tx), tx.Rollback())
	}} {
		err := begin(func(tx *Tx) error {
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
	var ended *Bucket
	_ = db.View(func(tx *Tx) error { ended = tx.Bucket([]byte("a")); return nil })
	if keys, err := seen(ended, nil, 1); !errors.Is(err, ErrTxClosed) || keys != nil {
		t.Errorf("%q, %v", keys, err)
	}
}

// TestScanKeepsNoPage sees that pages which Spill has replaced are used again though they were scanned.
func TestScanKeepsNoPage(t *testing.T) {
	sizes := map[string]int64{}
	for _, how := range []string{"scanned", "iterated over"} {
		db := spillDB(t)
		err := db.Update(func(tx *Tx) error {
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
		_ = db.View(func(tx *Tx) error { sizes[how] = tx.Size(); return nil })
	}
	if sizes["scanned"]*2 > sizes["iterated over"] {
		t.Errorf("the file has %v bytes", sizes)
	}
}
