package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"holdfast"
)

// commitsInOrder makes commits by several goroutines at the same time, each with functions
// that note the commit's number, and tells in which order these were called.
func commitsInOrder(t *testing.T, db *holdfast.DB, writers, each int) (order []uint64) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				called := 0
				fn := func(tx *holdfast.Tx) error {
					n := countIn(tx) + 1
					for range 2 {
						tx.OnCommit(func() {
							mu.Lock()
							defer mu.Unlock()
							order = append(order, n)
							called++
						})
					}
					if (w+i)%5 == 0 {
						return errOwn // whose functions are not called
					}
					return countUp(tx)
				}
				err := db.Update(fn)
				if failed := (w+i)%5 == 0; failed && (err != errOwn || called != 0) || !failed && (err != nil || called != 2) {
					t.Errorf("%v, %d functions were called when Update returned", err, called)
				}
			}
		})
	}
	wg.Wait()
	return order
}

// Functions of OnCommit of transactions that shared a flush were called out of the order of
// the commits: 351 of 1,600.
func TestOnCommitInOrder(t *testing.T) {
	for _, options := range []holdfast.Options{{}, {DurableBase: true}, {StrictCompat: true}, {NoSync: true}, {Durability: holdfast.Periodic}} {
		db := open(t, tempPath(t), &options)
		order := commitsInOrder(t, db, 16, 40)
		if len(order) != 2*16*32 {
			t.Errorf("%+v: %d functions were called", options, len(order))
		}
		if !slices.IsSorted(order) {
			t.Errorf("%+v: not in the order of the commits", options)
		}
	}
}

// A function of OnCommit makes a transaction, which has such functions itself: they are called at
// once, as with bbolt, while others wait for the first.
func TestOnCommitMakesTransactions(t *testing.T) {
	db := open(t, tempPath(t), nil)
	must(t, within(t, "nested commits", func() error {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 10 {
					inner, outer := 0, 0
					must(t, db.Update(func(tx *holdfast.Tx) error {
						tx.OnCommit(func() {
							must(t, db.Update(func(tx *holdfast.Tx) error {
								tx.OnCommit(func() { inner++ })
								return countUp(tx)
							}))
							if inner != 1 {
								t.Error("the function of the inner transaction was not called when that had returned")
							}
						})
						tx.OnCommit(func() { outer++ })
						return countUp(tx)
					}))
					if outer != 1 {
						t.Error("the second function was not called")
					}
				}
			})
		}
		wg.Wait()
		return nil
	}))
}

// A function of OnCommit waits for another goroutine, whose transaction has such functions too. That
// one must not wait for the first for ever: bbolt does not.
func TestOnCommitWaitsForAnother(t *testing.T) {
	db := open(t, tempPath(t), nil)
	must(t, within(t, "a commit that waits for one after it", func() error {
		other := make(chan error)
		return db.Update(func(tx *holdfast.Tx) error {
			tx.OnCommit(func() {
				go func() {
					other <- db.Update(func(tx *holdfast.Tx) error {
						tx.OnCommit(func() {})
						return countUp(tx)
					})
				}()
				must(t, <-other)
			})
			return countUp(tx)
		})
	}))
}

// A transaction that changed nothing has its place, too; and one whose commit failed, or whose
// function panicked, keeps none.
func TestOnCommitOfOthers(t *testing.T) {
	db := open(t, tempPath(t), nil)
	must(t, db.Update(countUp))
	boom := errors.New("boom")
	must(t, within(t, "places", func() error {
		for i := range 5 {
			var order []string
			note := func(tx *holdfast.Tx, what string) { tx.OnCommit(func() { order = append(order, what) }) }
			must(t, db.Update(func(tx *holdfast.Tx) error { note(tx, "nothing"); return nil }))
			db.MaxSize = 1
			err := db.Update(func(tx *holdfast.Tx) error {
				note(tx, "failed")
				return tx.Bucket([]byte("b")).Put([]byte("large"), make([]byte, 1<<25))
			})
			db.MaxSize = 0
			if err != holdfast.ErrMaxSizeReached {
				return fmt.Errorf("too large: %v", err)
			}
			if value := mustPanic(t, func() {
				_ = db.Update(func(tx *holdfast.Tx) error { tx.OnCommit(func() { panic(boom) }); return countUp(tx) })
			}); value != boom {
				return fmt.Errorf("panics with %v", value)
			}
			must(t, db.Batch(func(tx *holdfast.Tx) error { note(tx, "batch"); return countUp(tx) }))
			if !slices.Equal(order, []string{"nothing", "batch"}) {
				return fmt.Errorf("round %d: %v", i, order)
			}
		}
		return nil
	}))
}

// A function of OnCommit that made a transaction in another database had that one's functions
// called out of order: they were taken for functions within functions of the same database.
func TestOnCommitInTwoDatabases(t *testing.T) {
	first, second := open(t, tempPath(t), nil), open(t, tempPath(t), nil)
	started, goOn := make(chan struct{}), make(chan struct{})
	ended := false
	var wg sync.WaitGroup
	wg.Go(func() {
		must(t, second.Update(func(tx *holdfast.Tx) error {
			tx.OnCommit(func() {
				close(started)
				<-goOn
				ended = true
			})
			return countUp(tx)
		}))
	})
	<-started
	wg.Go(func() { // when the other transaction has been committed its functions go on
		for n := uint64(0); n < 2; {
			view(t, second, func(tx *holdfast.Tx) { n = countIn(tx) })
		}
		close(goOn)
	})
	must(t, first.Update(func(tx *holdfast.Tx) error {
		tx.OnCommit(func() {
			must(t, second.Update(func(tx *holdfast.Tx) error {
				tx.OnCommit(func() {
					if !ended {
						t.Error("functions of a later transaction are called before those of an earlier one have ended")
					}
				})
				return countUp(tx)
			}))
		})
		return countUp(tx)
	}))
	wg.Wait()
	must(t, first.Close())
	must(t, second.Close())
}
