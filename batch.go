package holdfast

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// batcher joins calls of Batch in one transaction.
type batcher struct {
	mu   sync.Mutex
	open *batch // takes more calls
}

// batch is calls that will be run in one transaction.
type batch struct {
	db    *DB
	timer *time.Timer
	start sync.Once
	calls []call
}

type call struct {
	fn   func(*Tx) error
	done chan<- error
}

// errRerun tells a call of Batch that it must be run by itself.
var errRerun = errors.New("batch function returned an error and should be re-run solo")

// Batch runs fn in a writing transaction as Update does, but joins concurrent
// calls in one transaction. It pays off only if many goroutines call it. fn
// may be called more than once, whether or not it returns an error, so what it
// does besides the transaction must stand repetition, and may count only after
// Batch has returned nil.
//
// A call whose function fails is taken out and run again by itself; the others
// are run again without it.
func (db *DB) Batch(fn func(*Tx) error) error {
	done := make(chan error, 1)
	db.batch.mu.Lock()
	b := db.batch.open
	if b == nil || len(b.calls) >= db.MaxBatchSize {
		b = &batch{db: db}
		b.timer = time.AfterFunc(db.MaxBatchDelay, b.trigger)
		db.batch.open = b
	}
	b.calls = append(b.calls, call{fn: fn, done: done})
	if len(b.calls) >= db.MaxBatchSize {
		go b.trigger()
	}
	db.batch.mu.Unlock()

	err := <-done
	if err == errRerun {
		err = db.Update(fn)
	}
	return err
}

// trigger runs the batch, once.
func (b *batch) trigger() { b.start.Do(b.run) }

func (b *batch) run() {
	b.db.batch.mu.Lock()
	b.timer.Stop()
	if b.db.batch.open == b {
		b.db.batch.open = nil
	}
	b.db.batch.mu.Unlock()

	for len(b.calls) > 0 {
		failed := -1
		err := b.db.Update(func(tx *Tx) error {
			for i, c := range b.calls {
				if err := callSafely(c.fn, tx); err != nil {
					failed = i
					return err
				}
			}
			return nil
		})
		if failed >= 0 {
			// The function may behave differently when run by itself, and its
			// error or panic belongs to the goroutine that called Batch.
			c := b.calls[failed]
			last := len(b.calls) - 1
			b.calls[failed] = b.calls[last]
			b.calls = b.calls[:last]
			c.done <- errRerun
			continue
		}
		for _, c := range b.calls {
			c.done <- err
		}
		return
	}
}

// callSafely turns a panic of fn into an error.
func callSafely(fn func(*Tx) error, tx *Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a batch function: %v", p)
		}
	}()
	return fn(tx)
}
