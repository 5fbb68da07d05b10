package blob

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"holdfast"
)

// Blobs of all lengths below a leaf, which is longer than 16 pages, share pages, go, are collected and vacuumed: what is left can be
// read, and the pages are those of one tree.
func TestSmallBlobsOfAllLengths(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 9))
		db := newStore(t, Options{LeafSize: []int{0, 300 << 10}[seed%2]})
		kept := map[Ref][]byte{}
		number := seed << 32
		for range 8 {
			update(t, db, func(s *Store) {
				for range rng.IntN(300) {
					number++
					n := []int{20, 1100, 5000, 290 << 10}[min(rng.IntN(40), 3)] * rng.IntN(100) / 100
					if rng.IntN(3) > 0 {
						n = rng.IntN(1500)
					}
					p := random(number, 8+n)
					kept[must2(s.Put(p))] = p
				}
				share := rng.IntN(10)
				for ref := range kept {
					if rng.IntN(10) < share {
						must(t, s.Delete(ref))
						delete(kept, ref)
					}
				}
			})
			must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
			if rng.IntN(3) == 0 {
				must2(db.Vacuum(context.Background(), holdfast.VacuumOptions{}))
			}
			var refs []Ref
			for ref := range kept {
				refs = append(refs, ref)
			}
			must(t, db.View(func(tx *holdfast.Tx) error {
				s := openIn(tx)
				for _, ref := range refs {
					if !bytes.Equal(readAll(t, s, ref), kept[ref]) {
						t.Fatalf("seed %d: blob %v has other bytes", seed, ref)
					}
				}
				for err := range tx.Check() {
					t.Errorf("seed %d: %v", seed, err)
				}
				return checkClean(s, CheckOptions{Data: true, Roots: rootsOf(refs...)})
			}))
		}
	}
}
