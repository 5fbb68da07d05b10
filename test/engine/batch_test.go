package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast"
)

func batchDB(t *testing.T) *holdfast.DB {
	db := openNew(t, 0)
	update(t, db, func(tx *holdfast.Tx) { createBucket(t, tx, "b") })
	return db
}

func putNumber(i int) func(tx *holdfast.Tx) error {
	return func(tx *holdfast.Tx) error { return tx.Bucket([]byte("b")).Put(fmt.Append(nil, i), nil) }
}

func readerID(t *testing.T, db *holdfast.DB) (id int) {
	view(t, db, func(tx *holdfast.Tx) { id = tx.ID() })
	return id
}

// Concurrent calls share a transaction: with MaxBatchSize of n and no delay to
// speak of, n calls are one commit.
func TestBatchJoins(t *testing.T) {
	db := batchDB(t)
	const n = 50
	db.MaxBatchSize, db.MaxBatchDelay = n, watchdog
	before := readerID(t, db)
	must(t, within(t, "Batch", func() error {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := db.Batch(putNumber(i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		return nil
	}))
	if commits := readerID(t, db) - before; commits != 1 {
		t.Errorf("%d commits, want 1", commits)
	}
	if got := keys(t, db); got != n {
		t.Errorf("%d keys, want %d", got, n)
	}
}

// The delay ends a batch that is not full; without room for others, and
// without delay, each call is by itself.
func TestBatchAlone(t *testing.T) {
	db := batchDB(t)
	for i, limit := range []struct {
		size  int
		delay time.Duration
	}{{1000, time.Millisecond}, {1, watchdog}, {0, watchdog}, {-1, watchdog}, {1000, 0}, {1000, -1}} {
		db.MaxBatchSize, db.MaxBatchDelay = limit.size, limit.delay
		must(t, within(t, fmt.Sprint(limit), func() error { return db.Batch(putNumber(i)) }))
	}
	if got := keys(t, db); got != 6 {
		t.Errorf("%d keys, want 6", got)
	}
}

// A call that fails is taken out and run again by itself, with its error for
// its own caller; the others are committed all the same. One that panics does
// so in the goroutine that called Batch.
func TestBatchFailures(t *testing.T) {
	db := batchDB(t)
	const n = 12
	db.MaxBatchSize, db.MaxBatchDelay = n, watchdog
	fail, boom := errors.New("fail"), errors.New("boom")
	var ran [n]atomic.Int32
	must(t, within(t, "Batch", func() error {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				defer func() {
					got := recover()
					if want := map[bool]any{true: boom}[i == 7]; got != want {
						t.Errorf("call %d panicked with %v, want %v", i, got, want)
					}
				}()
				var want error
				if i == 3 || i == 8 {
					want = fail
				}
				err := db.Batch(func(tx *holdfast.Tx) error {
					ran[i].Add(1)
					if err := putNumber(i)(tx); err != nil {
						return err
					}
					if i == 7 {
						panic(boom)
					}
					return want
				})
				if err != want {
					t.Errorf("call %d: %v, want %v", i, err, want)
				}
			})
		}
		wg.Wait()
		return nil
	}))
	if got := keys(t, db); got != n-3 {
		t.Errorf("%d keys, want %d", got, n-3)
	}
	for _, i := range []int{3, 7, 8} {
		if got := ran[i].Load(); got != 2 {
			t.Errorf("call %d ran %d times, want 2: in the batch and alone", i, got)
		}
	}
}

// A call that fails only in company succeeds when it is run again.
func TestBatchRetrySucceeds(t *testing.T) {
	db := batchDB(t)
	var calls atomic.Int32
	must(t, db.Batch(func(tx *holdfast.Tx) error {
		if calls.Add(1) == 1 {
			return errAgain
		}
		return putNumber(1)(tx)
	}))
	if got := keys(t, db); got != 1 || calls.Load() != 2 {
		t.Errorf("%d keys after %d calls", got, calls.Load())
	}
}

// A failing commit is the error of every call in the batch.
func TestBatchCommitFails(t *testing.T) {
	db := batchDB(t)
	db.MaxSize = 1
	db.MaxBatchSize, db.MaxBatchDelay = 4, watchdog
	must(t, within(t, "Batch", func() error {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				err := db.Batch(func(tx *holdfast.Tx) error {
					return tx.Bucket([]byte("b")).Put(fmt.Append(nil, i), make([]byte, 1<<20))
				})
				if err != holdfast.ErrMaxSizeReached {
					t.Errorf("call %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		return nil
	}))
	if got := keys(t, db); got != 0 {
		t.Errorf("%d keys, want none", got)
	}
}
