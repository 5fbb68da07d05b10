package differential

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"holdfast"
)

// With pages of 512 bytes, or of 3,000, which a program may ask for, bbolt found no meta in a
// file of ours whose first one was torn, though the second was whole.
func TestTornMetaOfAnyPageSize(t *testing.T) {
	for _, pageSize := range []int{512, 1000, 1024, 3000, 4096, 16384} {
		path := filepath.Join(t.TempDir(), "db")
		db, err := holdfast.Open(path, 0o600, &holdfast.Options{PageSize: pageSize})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if err := db.Update(func(tx *holdfast.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("b"))
				if err != nil {
					return err
				}
				return b.Put([]byte("k"), fmt.Append(nil, i))
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		clear(data[:512])
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		stock, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Errorf("asked for pages of %d bytes: %v", pageSize, err)
			continue
		}
		if err := stock.View(func(tx *bbolt.Tx) error {
			if b := tx.Bucket([]byte("b")); b == nil || len(b.Get([]byte("k"))) != 1 {
				t.Errorf("asked for pages of %d bytes: the bucket is %v", pageSize, b)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if err := stock.Close(); err != nil {
			t.Error(err)
		}
	}
}
