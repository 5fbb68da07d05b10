package commit

import (
	"math/rand/v2"
	"testing"

	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/space"
)

// The pages that are taken for a snapshot are known to suffice before the set is, and
// what a reader allows is never exceeded.
func TestSnapshotFits(t *testing.T) {
	forms := map[bool]int{}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		c := Recorder{PageSize: 512 << rng.IntN(6)}
		high := page.ID(4 + rng.IntN(1<<(4+rng.IntN(18))))
		load := space.Load(high)
		longest := 1 + rng.IntN(1<<rng.IntN(12))
		for id := page.ID(2); id < high; id += 1 + page.ID(rng.IntN(longest)) {
			e := page.Extent{Start: id, N: min(uint64(1+rng.IntN(longest)), uint64(high-id))}
			if err := load.Put(e); err != nil {
				t.Fatal(err)
			}
			id = e.End()
		}
		c.Space = load.Space()
		txn := c.Space.Begin(1)
		n, asBits := c.snapshotPages(c.Space.UnusedRuns()+1, txn.HighWater())
		forms[asBits]++
		start, err := txn.Rise(n) // which makes the set's bits as many as they can be
		if err != nil {
			t.Fatal(err)
		}
		txn.Commit()
		next := Recording{whole: true, snapshot: page.Extent{Start: start, N: n}, bits: asBits}
		if next.Hasher, err = extension.NewHasher([16]byte{}); err != nil {
			t.Fatal(err)
		}
		c.Complete(&next)
		size := uint64(next.Free.Snapshot.Bytes)
		if limit := extension.MaxSnapshot(c.Space.HighWater()); size > n*uint64(c.PageSize) || size > limit {
			t.Errorf("seed %d: a snapshot of %d bytes, bits %t, in %d pages of %d, limit %d", seed, size, asBits, n, c.PageSize, limit)
		}
	}
	if forms[true] < 50 || forms[false] < 50 {
		t.Errorf("forms: %v", forms)
	}
}
