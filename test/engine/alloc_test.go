package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"holdfast"
)

// maxAllocs fails the test if a run of fn allocates more than limit times.
func maxAllocs(t *testing.T, what string, limit float64, fn func()) {
	t.Helper()
	if got := testing.AllocsPerRun(100, fn); got > limit {
		t.Errorf("%s allocates %v times, want at most %v", what, got, limit)
	}
}

// Programs call these all the time: what they allocate is promised in
// bench/results/bench.md, and bounded here.
func TestAllocations(t *testing.T) {
	db := openNew(t, 0)
	fill(t, db, 20_000, 100)
	name, key, value := []byte("b"), []byte("00012345"), make([]byte, 100)
	fail := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}

	maxAllocs(t, "an empty View", 1, func() { fail(db.View(func(*holdfast.Tx) error { return nil })) })
	maxAllocs(t, "View and Get", 3, func() {
		fail(db.View(func(tx *holdfast.Tx) error {
			if tx.Bucket(name).Get(key) == nil {
				t.Fatal("no such key")
			}
			return nil
		}))
	})
	view(t, db, func(tx *holdfast.Tx) {
		b := tx.Bucket(name)
		maxAllocs(t, "Get in an open transaction", 0, func() { b.Get(key) })
		maxAllocs(t, "Get of a key that is not there", 0, func() { b.Get(name) })
		c := b.Cursor()
		c.First()
		maxAllocs(t, "a step forward", 0, func() {
			if k, _ := c.Next(); k == nil {
				c.First()
			}
		})
		c.Last()
		maxAllocs(t, "a step backward", 0, func() { c.Prev() })
		maxAllocs(t, "a seek", 0, func() { c.Seek(key) })
		steps := 0
		all := testing.AllocsPerRun(5, func() {
			for range b.All() {
				steps++
			}
		})
		if steps < 100_000 || all > 5 {
			t.Errorf("a loop over All allocates %v times", all)
		}
	})
	maxAllocs(t, "an Update of one key", 10, func() {
		fail(db.Update(func(tx *holdfast.Tx) error { return tx.Bucket(name).Put(key, value) }))
	})
	maxAllocs(t, "an Update that changes nothing", 4, func() { fail(db.Update(func(*holdfast.Tx) error { return nil })) })
}

// A transaction of a thousand random puts, in a large bucket, allocates for
// what it keeps: not more than three times for each.
func TestAllocationsOfManyPuts(t *testing.T) {
	db := openNew(t, 0)
	fill(t, db, 100_000, 100)
	rng := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 100)
	keys := make([][]byte, 1000)
	got := testing.AllocsPerRun(10, func() {
		for i := range keys {
			keys[i] = fmt.Appendf(keys[i][:0], "%08d", rng.IntN(100_000))
		}
		update(t, db, func(tx *holdfast.Tx) {
			b := tx.Bucket([]byte("b"))
			for _, k := range keys {
				if err := b.Put(k, value); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
	if got > 3000 {
		t.Errorf("a thousand puts allocate %v times, want at most 3000", got)
	}
	t.Logf("a thousand puts allocate %v times", got)
}
