package engine

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

func putRandom(t *testing.T, db *holdfast.DB, rng *rand.Rand, keys int) {
	update(t, db, func(tx *holdfast.Tx) {
		must(t, tx.Bucket([]byte("b")).Put(binary.BigEndian.AppendUint64(nil, uint64(rng.IntN(keys))), make([]byte, 100)))
	})
}

// A one-key commit writes a leaf, the branches and the root, and a meta. These were
// five places of the file, each with a write call of its own and an access of the
// disk in the flush: what a commit gave up, the next ones took page by page.
func TestPagesOfACommitLieTogether(t *testing.T) {
	const keys, commits = 20_000, 500
	db, err := bridge.Open(vfs.NewMem("mem").Open(), &holdfast.Options{SettleDelay: -1})
	must(t, err)
	defer db.Close()
	fill(t, db, keys, 100)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		putRandom(t, db, rng, keys)
	}
	before := db.Stats()
	for range commits {
		putRandom(t, db, rng, keys)
	}
	after := db.Stats()
	calls := float64(after.WriteCalls-before.WriteCalls) / commits
	pages := float64(after.PagesWritten-before.PagesWritten) / commits
	t.Logf("%.2f write calls and %.2f pages a commit", calls, pages)
	if pages < 4.9 {
		t.Errorf("%.2f pages: the tree is too small for this test", pages)
	}
	if calls > 3.2 {
		t.Errorf("%.2f write calls a commit, want leaf, branches with root, and meta", calls)
	}
}

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
