package pager

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
		p := &Pager{pageSize: 512 << rng.IntN(6)}
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
		p.space = load.Space()
		txn := p.space.Begin(1)
		n, asBits := p.snapshotPages(p.space.UnusedRuns()+1, txn.HighWater())
		forms[asBits]++
		start, err := txn.Rise(n) // which makes the set's bits as many as they can be
		if err != nil {
			t.Fatal(err)
		}
		txn.Commit()
		next := recording{whole: true, snapshot: page.Extent{Start: start, N: n}, bits: asBits}
		if next.hasher, err = extension.NewHasher([16]byte{}); err != nil {
			t.Fatal(err)
		}
		p.complete(&next)
		size := uint64(next.free.Snapshot.Bytes)
		if limit := extension.MaxSnapshot(p.space.HighWater()); size > n*uint64(p.pageSize) || size > limit {
			t.Errorf("seed %d: a snapshot of %d bytes, bits %t, in %d pages of %d, limit %d", seed, size, asBits, n, p.pageSize, limit)
		}
	}
	if forms[true] < 50 || forms[false] < 50 {
		t.Errorf("forms: %v", forms)
	}
}

// The pages of the freelist that Close leaves are known to suffice before the record is
// planned, which is in it. In files of some GiB of small pages it was longer than thought
// by the pages of the list, and Close panicked.
func TestFreelistHasRoom(t *testing.T) {
	for _, c := range []struct {
		pageSize int
		high     page.ID
	}{{512, 3_000_000}, {512, 26_000_000}, {1024, 20_000_000}, {4096, 1_200_000}} {
		for _, known := range []bool{false, true} {
			for extra := range page.ID(8) {
				high := c.high + 17*extra
				bits := make([]byte, high/8)
				for i := range bits {
					bits[i] = 0x55
				}
				bits[0] = 0x54
				load := space.Load(high)
				if err := load.PutBits(bits); err != nil {
					t.Fatal(err)
				}
				p := &Pager{pageSize: c.pageSize, space: load.Space()}
				var err error
				if p.record.hasher, err = extension.NewHasher([16]byte{}); err != nil {
					t.Fatal(err)
				}
				if p.record.known = known; known {
					p.record.free.Snapshot = extension.Run{Start: 3, Pages: 1}
					p.record.free.Inline = make([]byte, p.inlineRoom(0))
				}
				w := &WriteTx{p: p, space: p.space.Begin(1)}
				if err := w.nameFreelist(); err != nil {
					t.Fatal(err)
				}
				var rec recording
				if err := p.plan(w.space, &rec, false); err != nil {
					t.Fatal(err)
				}
				list := w.list
				w.space.Commit()
				n := p.space.FreeCount() + p.space.PendingCount()
				for e := range rec.runs() {
					n += e.N
				}
				n += rec.snapshot.N
				if size := page.FreelistSize(n); size > list.N*uint64(c.pageSize) {
					t.Errorf("pages of %d bytes, high-water mark %d, known %t: a list of %d bytes in %d", c.pageSize, high, known, size, list.N*uint64(c.pageSize))
				}
			}
		}
	}
}
