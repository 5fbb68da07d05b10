package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"holdfast"
)

// TestFileStaysDense: values of all sizes come and go, and the file does not become much
// longer than what is in it.
func TestFileStaysDense(t *testing.T) {
	db := openNew(t, 4096)
	defer db.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	sizes := []int{50, 500, 3000, 9000, 30_000, 120_000}
	const keys, each = 1000, 50
	for range 6 * keys / each {
		update(t, db, func(tx *holdfast.Tx) {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			must(t, err)
			for i := range each {
				key := fmt.Appendf(nil, "%08d", rnd.IntN(keys))
				if i%5 == 4 {
					must(t, b.Delete(key))
				} else {
					must(t, b.Put(key, make([]byte, sizes[rnd.IntN(len(sizes))])))
				}
			}
		})
	}
	var size int64
	view(t, db, func(tx *holdfast.Tx) { size = tx.Size() })
	s := db.Stats()
	used := size - int64(s.FreePageN+s.PendingPageN)*4096
	if ratio := float64(size) / float64(used); ratio > 1.6 {
		t.Errorf("%d bytes for %d in use, %.2f times as many", size, used, ratio)
	} else {
		t.Logf("%.2f times as many bytes as in use", ratio)
	}
}
