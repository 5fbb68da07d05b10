package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"holdfast"
	"holdfast/internal/vfs"
)

// BenchmarkCompact copies databases of 64 MiB to 100 MiB whose elements divide pages in different ways. Besides the
// time it gives the size of the copy, which says how full its pages are.
func BenchmarkCompact(b *testing.B) {
	small := func(tx *holdfast.Tx, _ []byte) *holdfast.Bucket { return createBucketIfNone(b, tx, "b") }
	for _, c := range []struct {
		name    string
		n       int
		size    func(i int) int
		buckets func(tx *holdfast.Tx, key []byte) *holdfast.Bucket
	}{
		{"Small", 600_000, func(int) int { return 100 }, small},
		{"Mixed", 20_000, func(i int) int { return i * i % 9_000 }, small},
		{"Pages", 12_000, func(int) int { return 6_000 }, small},
		{"Chunks", 1_000, func(int) int { return 65_488 }, small},
		{"Inline", 100_000, func(int) int { return 500 }, func(tx *holdfast.Tx, key []byte) *holdfast.Bucket {
			return createBucketIfNone(b, createBucketIfNone(b, tx, "b"), string(key))
		}},
		{"Buckets", 20_000, func(int) int { return 3_000 }, func(tx *holdfast.Tx, key []byte) *holdfast.Bucket {
			return createBucketIfNone(b, tx, string(key))
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			options := &holdfast.Options{NoSync: true}
			src, err := holdfast.Open(filepath.Join(b.TempDir(), "src"), 0o600, options)
			must(b, err)
			defer src.Close()
			value := bytes.Repeat([]byte("v"), 1<<16)
			update(b, src, func(tx *holdfast.Tx) {
				for i := range c.n {
					key := fmt.Appendf(nil, "%08d", i)
					must(b, c.buckets(tx, key).Put(key, value[:c.size(i)]))
				}
			})
			var size int64
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				dst, err := holdfast.Open(filepath.Join(b.TempDir(), "dst"), 0o600, options)
				must(b, err)
				b.StartTimer()
				must(b, holdfast.Compact(dst, src, 0))
				b.StopTimer()
				view(b, dst, func(tx *holdfast.Tx) { size = tx.Size() })
				must(b, dst.Close())
				b.StartTimer()
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}

type bucketCreator interface {
	CreateBucketIfNotExists(name []byte) (*holdfast.Bucket, error)
}

func createBucketIfNone(b *testing.B, in bucketCreator, name string) *holdfast.Bucket {
	bucket, err := in.CreateBucketIfNotExists([]byte(name))
	must(b, err)
	return bucket
}

// Durable commits of some random puts into 400,000 keys, with one flush and with
// two (StrictCompat): what docs/decisions/002-no-list-pages.md rests on.
func BenchmarkDurableCommit(b *testing.B) {
	for _, puts := range []int{1, 10, 100, 1000, 10_000} {
		for _, strict := range []bool{false, true} {
			b.Run(fmt.Sprintf("puts=%d/strict=%t", puts, strict), func(b *testing.B) { durableCommits(b, puts, strict) })
		}
	}
}

func durableCommits(b *testing.B, puts int, strict bool) {
	const keys = 400_000
	db := open(b, tempPath(b), &holdfast.Options{StrictCompat: strict, SettleDelay: -1})
	put := func(ids func(yield func(int) bool)) {
		must(b, db.Update(func(tx *holdfast.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("b"))
			for i := range ids {
				if err == nil {
					err = bucket.Put(binary.BigEndian.AppendUint64(nil, uint64(i)*7), make([]byte, 100))
				}
			}
			return err
		}))
	}
	db.NoSync = true
	for from := 0; from < keys; from += 20_000 {
		put(func(yield func(int) bool) {
			for i := from; i < from+20_000 && yield(i); i++ {
			}
		})
	}
	db.NoSync = false
	must(b, db.Sync())
	before := db.Stats()
	for b.Loop() {
		put(func(yield func(int) bool) {
			for range puts {
				if !yield(rand.IntN(keys)) {
					return
				}
			}
		})
	}
	after := db.Stats()
	b.ReportMetric(float64(after.Flushes-before.Flushes)/float64(b.N), "flushes/op")
}

// What seals cost: random reads of pages that were read before, and commits of
// one key without a flush, which shows it at its largest. Compare the two of each.
//
//	go test -run '^$' -bench Seals -count 6 .
func BenchmarkSeals(b *testing.B) {
	const n = 200_000
	for _, seals := range []string{"on", "off"} {
		db := open(b, tempPath(b), &holdfast.Options{NoSync: true, NoSeals: seals == "off"})
		fill(b, db, n, 100)
		name := []byte("b")
		keys := make([][]byte, 4096)
		for i := range keys {
			keys[i] = fmt.Appendf(nil, "%08d", rand.IntN(n))
		}
		b.Run("read/"+seals, func(b *testing.B) {
			view(b, db, func(tx *holdfast.Tx) {
				in := tx.Bucket(name)
				for i := 0; b.Loop(); i++ {
					if in.Get(keys[i%len(keys)]) == nil {
						b.Fatal("no such key")
					}
				}
			})
		})
		b.Run("commit/"+seals, func(b *testing.B) {
			value := make([]byte, 100)
			for i := 0; b.Loop(); i++ {
				must(b, db.Update(func(tx *holdfast.Tx) error { return tx.Bucket(name).Put(keys[i%len(keys)], value) }))
			}
		})
	}
}

// BenchmarkDelete deletes what it has put, whole: a bucket of 20,000 keys, and 1,000 values of 64 KiB,
// which are in the system's cache or are not. The seal sum needs the end of each run that is freed
// (docs/decisions/008-seal-sum.md).
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
