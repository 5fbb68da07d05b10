package engine

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"holdfast"
)

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
