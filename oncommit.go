package holdfast

import (
	"bytes"
	"runtime"
	"sync"
	"time"
)

// Transactions that share a flush wake at the same time, each in its own goroutine. The functions
// that they gave to OnCommit are called there, before Commit returns, and yet in the order of
// the commits: a transaction that has some takes a place in a row while it holds the writer
// lock, and waits for those before it.

// onCommitPatience is how long the functions of a transaction may run before those of later
// ones do not wait for them any more. They may wait for one of these themselves, by a channel,
// or a lock that its caller holds; then none of them would ever go on.
const onCommitPatience = time.Second

// commitOrder is the row of transactions with functions to be called.
type commitOrder struct {
	mu      sync.Mutex // guards the rest, and prev and absent of all places
	last    *place
	callers map[string]int // goroutines in which functions run, and how often one within the other
}

// calling says that the goroutine calls functions, until what it returns is called.
func (o *commitOrder) calling(goroutine string) (end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.callers == nil {
		o.callers = make(map[string]int)
	}
	o.callers[goroutine]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.callers[goroutine]--; o.callers[goroutine] == 0 {
			delete(o.callers, goroutine)
		}
	}
}

// calls tells whether functions of this database run in the goroutine.
func (o *commitOrder) calls(goroutine string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.callers[goroutine] > 0
}

// place is that of one transaction.
type place struct {
	order  *commitOrder
	prev   *place        // the one before; nil: nothing to wait for
	absent bool          // it does not hold up those after it: they wait for prev
	began  chan struct{} // closed when its functions are about to be called
	done   chan struct{} // closed after them, or when it is clear that they are not
}

// join takes the next place. The caller holds the writer lock.
func (o *commitOrder) join() *place {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := &place{order: o, prev: o.last, absent: true, began: make(chan struct{}), done: make(chan struct{})}
	o.last = p
	return p
}

// wait waits for the functions of earlier transactions; false if those of one of them have run
// for too long.
func (p *place) wait() (inOrder bool) {
	inOrder = true
	for before := p.before(); before != nil && inOrder; before = p.before() {
		if p.order.calls(goroutine()) { // it would wait for its own end
			close(p.began)
			return true
		}
		<-before.began
		timer := time.NewTimer(onCommitPatience)
		select {
		case <-before.done:
		case <-timer.C:
			inOrder = false
		}
		timer.Stop()
	}
	p.order.mu.Lock()
	p.prev, p.absent = nil, false
	p.order.mu.Unlock()
	close(p.began)
	return inOrder
}

// before is the place to wait for, nil if there is none.
func (p *place) before() *place {
	p.order.mu.Lock()
	defer p.order.mu.Unlock()
	for p.prev != nil && p.prev.ended() {
		if p.prev.absent {
			p.prev = p.prev.prev
		} else {
			p.prev = nil
		}
	}
	return p.prev
}

func (p *place) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end gives up the place, whether or not its functions were called.
func (p *place) end() {
	select {
	case <-p.began:
	default:
		close(p.began)
	}
	close(p.done)
	o := p.order
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.last != nil && o.last.ended() { // or a row of failed transactions would be kept
		if o.last.absent {
			o.last = o.last.prev
		} else {
			o.last = nil
		}
	}
}

// goroutine is the number of the caller's goroutine, as stacks show it.
func goroutine() string {
	var buf [64]byte
	head, _, _ := bytes.Cut(buf[:runtime.Stack(buf[:], false)], []byte(" ["))
	return string(head)
}

// written calls what may happen once nothing of the transaction's memory is needed any more: in no order with other
// transactions, which costs less than OnCommit. Of a transaction that was rolled back, or changed nothing, it is not called.
func (tx *Tx) written() {
	for _, fn := range tx.w.onWritten {
		fn()
	}
}

// committed calls what OnCommit was given, in p's order; p is nil if that is nothing.
func (tx *Tx) committed(p *place) {
	if p == nil {
		return
	}
	if !p.wait() {
		tx.db.logger.Warningf("Functions of OnCommit have run for more than %v: those of later transactions do not wait for them", onCommitPatience)
	}
	defer p.order.calling(goroutine())()
	for _, fn := range tx.w.onCommit {
		fn()
	}
}

// BeforeCommit has fn called at the beginning of Commit, in the order of the calls,
// before anything is written, also by Update and Batch. fn may change the database, and
// call BeforeCommit again. If it returns an error the transaction is rolled back, and Commit
// returns that; if it panics, the transaction is rolled back. It must not end the transaction
// itself, and is not called if that is rolled back, or cannot be committed.
func (tx *Tx) BeforeCommit(fn func() error) {
	if tx.w != nil {
		if tx.w.beforeCommit == nil {
			tx.w.beforeCommit = tx.w.firstBefore[:0]
		}
		tx.w.beforeCommit = append(tx.w.beforeCommit, fn)
	}
}

// runBeforeCommit calls what BeforeCommit was given.
func (tx *Tx) runBeforeCommit() error {
	for i := 0; i < len(tx.w.beforeCommit); i++ {
		if err := tx.manage(func(*Tx) error { return tx.w.beforeCommit[i]() }); err != nil {
			tx.w.hookFailed = true
			return err
		}
	}
	tx.w.beforeCommit = nil
	return nil
}

// OnCommit has fn called after the transaction has committed and before Commit, Update or Batch
// returns, in the order of the calls. See BeforeCommit.
//
// The functions of several transactions are called in the order in which these have
// committed, one transaction after the other; but those of a transaction that such a function makes
// itself at once, and later ones do not wait for functions that run for more than a second.
func (tx *Tx) OnCommit(fn func()) {
	if tx.w != nil {
		tx.w.onCommit = append(tx.w.onCommit, fn)
	}
}
