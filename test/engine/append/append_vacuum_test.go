package append

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"holdfast"
	"holdfast/test/hook"
)

// Transactions that append, some of which are rolled back or write megabytes long before they
// commit, beside a vacuum that is called all the time, or that runs by itself: the content is what the
// transactions say, each page is accounted for, and so it is when the file is opened again.
func TestAppendBesideVacuum(t *testing.T) {
	for _, auto := range []bool{false, true} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("auto %v, seed %d", auto, seed), func(t *testing.T) {
				t.Parallel()
				appendBesideVacuum(t, seed, auto)
			})
		}
	}
}

func appendBesideVacuum(t *testing.T, seed uint64, auto bool) {
	h := &appendHistory{t: t, rng: rand.New(rand.NewPCG(seed, 6)), root: newAppendModel()}
	options := &holdfast.Options{PageSize: 1024, Durability: []holdfast.Durability{holdfast.Full, holdfast.Periodic, holdfast.None}[seed%3]}
	if auto {
		options.AutoVacuum = &holdfast.AutoVacuum{MinShare: 0.01, MinBytes: 1, Interval: time.Millisecond, MaxBusy: 1, MaxShare: 1}
	}
	path := filepath.Join(t.TempDir(), "db")
	var err error
	if h.db, err = holdfast.Open(path, 0o600, options); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.db.Close() }() // h.db is another in the end
	hook.WriteEarly(h.db, 1<<h.rng.IntN(16), 0)
	// Steps of vacuums lie between, and within the time of, the transactions.
	steps := func() int { return h.db.Stats().Vacuum.Runs }
	done := func() {}
	if !auto {
		steps, done = vacuumAllTheTime(t, h.db)
	}
	defer done()
	const rounds, wanted, most = 30, 6, 4000
	for round := 0; round < rounds || steps() < wanted; round++ {
		if round == most {
			t.Fatalf("%d steps beside %d transactions: the test tests nothing", steps(), round)
		}
		if len(h.root.values)+len(h.root.buckets) > 12 { // so that there are holes, and it ends
			if err := h.emptied(); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if err := h.transaction(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := h.compare(); err != nil {
			t.Fatalf("behind round %d: %v", round, err)
		}
	}
	done()
	if err := h.db.Close(); err != nil {
		t.Fatal(err)
	}
	if h.db, err = holdfast.Open(path, 0o600, nil); err != nil {
		t.Fatal(err)
	}
	if err := h.compare(); err != nil {
		t.Fatalf("opened again: %v", err)
	}
}

// emptied deletes most buckets.
func (h *appendHistory) emptied() error {
	root := h.root.clone()
	err := h.db.Update(func(tx *holdfast.Tx) error {
		for _, name := range h.root.keys() {
			if h.rng.IntN(4) == 0 {
				continue
			}
			delete(root.buckets, name)
			if err := tx.DeleteBucket([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		h.root = root
	}
	return err
}

// vacuumAllTheTime vacuums until done is called; steps is how many transactions that has taken.
func vacuumAllTheTime(t *testing.T, db *holdfast.DB) (steps func() int, done func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var wg sync.WaitGroup
	n := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			r, err := db.Vacuum(ctx, holdfast.VacuumOptions{Hurry: true, StepPages: 4})
			if err != nil && ctx.Err() == nil {
				t.Errorf("vacuum: %v", err)
				return
			}
			mu.Lock()
			n += r.Steps
			mu.Unlock()
		}
	})
	steps = func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
	return steps, sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
}
