package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"holdfast"
	"holdfast/internal/vfs"
)

// BenchmarkDelete deletes what it has put, whole: a bucket of 20,000 keys, and 1,000 values of 64 KiB, which are in the system's
// cache or are not. The seal sum needs the end of each run that is freed (docs/decisions/008-seal-sum.md).
func BenchmarkDelete(b *testing.B) {
	for _, c := range []struct {
		name       string
		keys, size int
		cold       bool
	}{
		{"Keys", 20_000, 100, false}, {"Values", 1_000, 64 << 10, false},
		{"KeysCold", 20_000, 100, true}, {"ValuesCold", 1_000, 64 << 10, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "db")
			db, err := holdfast.Open(path, 0o600, nil)
			must(b, err)
			value := make([]byte, c.size)
			for b.Loop() {
				b.StopTimer()
				update(b, db, func(tx *holdfast.Tx) {
					bucket, err := tx.CreateBucket([]byte("b"))
					must(b, err)
					for i := range c.keys {
						must(b, bucket.Put(fmt.Appendf(nil, "%08d", i), value))
					}
				})
				if c.cold {
					must(b, db.Close())
					dropFromCache(b, path)
					db, err = holdfast.Open(path, 0o600, nil)
					must(b, err)
				}
				b.StartTimer()
				update(b, db, func(tx *holdfast.Tx) { must(b, tx.DeleteBucket([]byte("b"))) })
			}
			must(b, db.Close())
		})
	}
}

// dropFromCache has the next read of the file go to the disk, where the system can do that.
func dropFromCache(b *testing.B, path string) {
	f, err := vfs.OpenOS(path, os.O_RDONLY, 0, nil)
	must(b, err)
	must(b, f.DropCache(0, 1<<40))
	must(b, f.Close())
}
