package holdfast

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// batcher gathers calls of Batch until there are MaxBatchSize of them, or until
// the first has waited for MaxBatchDelay. The call that completes the number, or the
// timer, runs them.
type batcher struct {
	mu      sync.Mutex
	waiting []*batchCall
	rounds  int // batches taken so far: a timer is for one of them
	timer   *time.Timer
}

// batchCall is one caller of Batch, who waits for the result.
type batchCall struct {
	fn     func(*Tx) error
	result chan error // room for one
}

// errAlone is the result of a call whose function failed together with others: its
// caller runs it once more in a transaction of its own, where its error, or its
// panic, is the caller's.
var errAlone = errors.New("the function of a Batch failed among others")

// Batch runs fn in a writing transaction as Update does, but joins concurrent
// calls in one transaction. It pays off only if many goroutines call it. fn
// may be called more than once, whether or not it returns an error, so what it
// does besides the transaction must stand repetition, and may count only after
// Batch has returned nil.
//
// A call whose function fails is taken out and run again by itself; the others
// are run again without it. If what one of them gave to Tx.BeforeCommit fails, each is run
// again by itself.
func (db *DB) Batch(fn func(*Tx) error) error {
	c := &batchCall{fn: fn, result: make(chan error, 1)}
	if full := db.batch.add(db, c); full != nil {
		db.runTogether(full)
	}
	if err := <-c.result; err != errAlone {
		return err
	}
	return db.Update(fn)
}

// add puts c among those that wait, and returns them all if they are enough.
func (b *batcher) add(db *DB, c *batchCall) []*batchCall {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, c)
	if len(b.waiting) >= db.MaxBatchSize {
		return b.take()
	}
	if len(b.waiting) == 1 {
		round := b.rounds
		b.timer = time.AfterFunc(db.MaxBatchDelay, func() { db.runTogether(b.takeRound(round)) })
	}
	return nil
}

// take ends the gathering of a batch. The caller holds mu.
func (b *batcher) take() []*batchCall {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	calls := b.waiting
	b.waiting = nil
	b.rounds++
	return calls
}

// takeRound is take for a timer, whose batch may have been taken already.
func (b *batcher) takeRound(round int) []*batchCall {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rounds != round {
		return nil
	}
	return b.take()
}

// runTogether runs calls in one transaction, and without those whose function
// fails until all that are left succeed or the transaction itself fails.
func (db *DB) runTogether(calls []*batchCall) {
	for len(calls) > 0 {
		bad := -1
		var begun *Tx
		err := db.Update(func(tx *Tx) error {
			begun = tx
			for i := range calls {
				err := calls[i].run(tx)
				if err == nil {
					err = tx.damaged() // which the others need not meet
				}
				if err != nil {
					bad = i
					return err
				}
			}
			return nil
		})
		if bad < 0 {
			if len(calls) > 1 && begun != nil && begun.w.hookFailed { // it is not known whose it was
				err = errAlone
			}
			for _, c := range calls {
				c.result <- err
			}
			return
		}
		calls[bad].result <- errAlone
		calls = append(calls[:bad], calls[bad+1:]...)
	}
}

// run calls the function; a panic of it is an error here.
func (c *batchCall) run(tx *Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return c.fn(tx)
}
