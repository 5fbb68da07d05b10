package engine

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"holdfast"
)

// engineGoroutines are the stacks of goroutines in which this repository's code
// runs, those of tests excepted.
func engineGoroutines() []string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var found []string
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		if strings.Contains(stack, "holdfast") && !strings.Contains(stack, "testing.") {
			found = append(found, stack)
		}
	}
	return found
}

// noneLeft waits until the engine runs no goroutine.
func noneLeft(t *testing.T, when string) {
	t.Helper()
	must(t, within(t, when, func() error {
		for {
			found := engineGoroutines()
			rest := found[:0]
			for _, stack := range found {
				if !strings.Contains(stack, "within.func1") { // this one
					rest = append(rest, stack)
				}
			}
			if len(rest) == 0 {
				return nil
			}
			runtime.Gosched()
		}
	}))
}

// While a database is idle it has no goroutine: programs that look for leaked
// ones (with goleak, say) must not find one. A call that starts some must be
// rid of them soon after it has returned.
func TestNoGoroutineWhileIdle(t *testing.T) {
	noneLeft(t, "before")
	before := runtime.NumGoroutine()
	var all []*holdfast.DB
	for range 3 {
		all = append(all, open(t, tempPath(t), nil))
		noneLeft(t, "after Open")
	}
	db := all[0]
	fill(t, db, 1000, 100)
	noneLeft(t, "after a commit")
	tx := begin(t, db, false)
	noneLeft(t, "while a reader is open")
	must(t, tx.Rollback())
	tx = begin(t, db, true)
	noneLeft(t, "while a writer is open")
	must(t, tx.Rollback())
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if err := db.Batch(putNumber(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	noneLeft(t, "after Batch")
	checkDB(t, db)
	noneLeft(t, "after Check")
	must(t, holdfast.Compact(all[1], db, 1000))
	noneLeft(t, "after Compact")
	if _, err := holdfast.Open(db.Path(), 0o600, &holdfast.Options{Timeout: 1}); err != holdfast.ErrTimeout {
		t.Error(err)
	}
	noneLeft(t, "after an Open that gave up")
	for _, db := range all {
		must(t, db.Close())
	}
	noneLeft(t, "after Close")
	must(t, within(t, "the last goroutines", func() error { // those of this test may be ending
		for runtime.NumGoroutine() > before+1 { // and this one
			runtime.Gosched()
		}
		return nil
	}))
}

// Several goroutines read one transaction with cursors of their own, and open
// buckets in it; another ends it. (For the race detector.)
func TestOneReaderManyGoroutines(t *testing.T) {
	db := openNew(t, 1024)
	fill(t, db, 2000, 20)
	update(t, db, func(tx *holdfast.Tx) { put(t, createBucket(t, tx.Bucket([]byte("b")), "nested"), "k", "v") })
	tx := begin(t, db, false)
	top := tx.Bucket([]byte("b"))
	var readers sync.WaitGroup
	for g := range 8 {
		readers.Go(func() {
			b := tx.Bucket([]byte("b"))
			if g%2 == 0 {
				b = top // a handle that others use too
			}
			n := 0
			for k, v := range b.All() {
				if v == nil {
					if string(b.Bucket(k).Get([]byte("k"))) != "v" {
						t.Error("the nested bucket lacks its key")
					}
					continue
				}
				if len(b.Get(k)) != 20 {
					t.Errorf("Get(%s) gives %d bytes", k, len(b.Get(k)))
				}
				n++
			}
			if n != 2000 {
				t.Errorf("goroutine %d met %d keys, want 2000", g, n)
			}
			b.Stats()
			tx.Inspect()
			for err := range tx.Check() {
				t.Error(err)
			}
		})
	}
	readers.Go(func() { // a writer meanwhile
		for i := range 20 {
			err := db.Update(func(tx *holdfast.Tx) error {
				return tx.Bucket([]byte("b")).Put(fmt.Appendf(nil, "%08d", i), make([]byte, 700))
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
	readers.Wait()
	ended := make(chan error, 4)
	for range cap(ended) { // of several at once, one ends it
		go func() { ended <- tx.Rollback() }()
	}
	won := 0
	for range cap(ended) {
		switch err := <-ended; err {
		case nil:
			won++
		case holdfast.ErrTxClosed:
		default:
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d of the calls ended the transaction", won)
	}
}
