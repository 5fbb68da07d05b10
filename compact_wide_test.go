package holdfast

import (
	"fmt"
	"path/filepath"
	"testing"
)

// A copy of a bucket whose leaves have several pages was a third longer than the bucket: it had leaves of one page, in which
// three elements of 1 kB leave a quarter empty.
func TestCompactWide(t *testing.T) {
	dir := t.TempDir()
	open := func(name string) *DB {
		db, err := Open(filepath.Join(dir, name), 0o600, &Options{NoSync: true, PageSize: 4096})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	src, dst := open("src"), open("dst")
	const n = 3000
	err := src.Update(func(tx *Tx) error {
		outer, err := tx.CreateBucket([]byte("outer"))
		if err != nil {
			return err
		}
		b, err := outer.CreateBucket([]byte("wide"))
		if err != nil {
			return err
		}
		b.core.SetWide(true)
		for i := range n {
			if err := b.Append(fmt.Appendf(nil, "%08d", i), make([]byte, 1000)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Compact(dst, src, 0); err != nil {
		t.Fatal(err)
	}
	size := func(db *DB) (n int64) {
		if err := db.View(func(tx *Tx) error { n = int64(tx.pages()) * 4096; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if s, d := size(src), size(dst); d > s || d > n*1000*107/100 {
		t.Errorf("%d bytes, and %d in the copy", s, d)
	}
	err = dst.View(func(tx *Tx) error {
		got := 0
		for _, v := range tx.Bucket([]byte("outer")).Bucket([]byte("wide")).All() {
			if len(v) == 1000 {
				got++
			}
		}
		if got != n {
			t.Errorf("%d elements", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
