package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"holdfast"
)

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
