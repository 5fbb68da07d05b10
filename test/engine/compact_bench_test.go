package engine

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"holdfast"
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
