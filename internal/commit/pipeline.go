package commit

import (
	"runtime"
	"slices"
	"sync"

	"holdfast/internal/page"
)

// Pipeline is the queue of what is to become durable, and the leader, which makes it so. Its
// lock, the Mutex, is the one of its owner too, and guards all but what the leader writes.
//
// At most one goroutine at a time is the leader, which is not a lock: the leader may read and
// write the file without holding the lock.
type Pipeline[T Member] struct {
	sync.Mutex
	env      Env[T]
	idle     *sync.Cond // there is no leader any more
	queue    []T        // oldest first
	bytes    int64      // of their pages
	barriers []T
	flight   []T // being written
	leading  bool
	group    Group[T] // the leader's
}

// Init makes p ready for use.
func (p *Pipeline[T]) Init(env Env[T]) {
	p.env, p.idle = env, sync.NewCond(&p.Mutex)
}

// Bounds of what is in the queue; beyond, writers wait.
const (
	maxQueue      = 1024
	maxQueueBytes = 64 << 20
)

// Join puts a transaction into the queue. The caller holds the lock.
func (p *Pipeline[T]) Join(m T) {
	p.queue = append(p.queue, m)
	p.bytes += int64(m.entry().Size)
}

// Bar queues a barrier. The caller holds the lock.
func (p *Pipeline[T]) Bar(m T) { p.barriers = append(p.barriers, m) }

// Queue is the transactions that wait for a group. The caller holds the lock, and changes nothing.
func (p *Pipeline[T]) Queue() []T { return p.queue }

// InFlight is those that are being written. The caller holds the lock, and changes nothing.
func (p *Pipeline[T]) InFlight() []T { return p.flight }

// Waiting is how many transactions and barriers wait for a group. The caller holds the lock.
func (p *Pipeline[T]) Waiting() int { return len(p.queue) + len(p.barriers) }

// Busy tells whether there is a leader, or a transaction waits for one. The caller holds the lock.
func (p *Pipeline[T]) Busy() bool { return p.leading || len(p.queue) > 0 }

// Newest is the newest transaction that is not durable; false if there is none. The caller
// holds the lock.
func (p *Pipeline[T]) Newest() (newest T, ok bool) {
	for _, members := range [2][]T{p.queue, p.flight} {
		if n := len(members); n > 0 {
			return members[n-1], true
		}
	}
	return newest, false
}

// Finish returns when m is durable and visible. If it fails the transaction has not
// happened; if it failed in a flush, or in writing the meta other than for want of room,
// nothing more is written until the file is opened again.
func (p *Pipeline[T]) Finish(m T) error {
	e := m.entry()
	p.Lock()
	if e.done { // the leader was quick
		p.Unlock()
		return e.err
	}
	if p.leading {
		e.wake = make(chan bool, 1)
		p.Unlock()
		if lead := <-e.wake; !lead {
			return e.err
		}
		// Those that the leader before has woken are ready to run after this one. Let them come
		// first: once it waits for the disk, no processor may run them for a while.
		runtime.Gosched()
		p.Lock()
	}
	p.leading = true
	for !e.done {
		p.leadGroup()
	}
	p.HandOff()
	p.Unlock()
	return e.err
}

// FinishHeld is Finish for a caller that holds the lock, which is given up meanwhile.
func (p *Pipeline[T]) FinishHeld(m T) error {
	p.Unlock()
	err := p.Finish(m)
	p.Lock() // not deferred: a panic below has it
	return err
}

// Wait waits for a transaction that another caller finishes.
func (p *Pipeline[T]) Wait(m T) error {
	p.Lock()
	defer p.Unlock()
	return p.WaitHeld(m)
}

// WaitHeld is Wait for a caller that holds the lock, which is given up meanwhile.
func (p *Pipeline[T]) WaitHeld(m T) error {
	e := m.entry()
	if e.done {
		return e.err
	}
	if e.ended == nil {
		e.ended = make(chan struct{})
	}
	p.Unlock()
	<-e.ended
	p.Lock()
	return e.err
}

// WaitForRoom waits while too much is in the queue. The caller is the one that
// can join it, and holds the lock, which is given up meanwhile.
func (p *Pipeline[T]) WaitForRoom() error {
	for len(p.queue) > maxQueue || p.bytes > maxQueueBytes {
		last, _ := p.Newest()
		_ = p.WaitHeld(last) // whose failure is its own
		if err := p.env.Stopped(); err != nil {
			return err
		}
	}
	return nil
}

// WaitIdle waits until nothing is queued, and there is no leader. The caller holds the lock,
// which is given up meanwhile.
func (p *Pipeline[T]) WaitIdle() {
	for p.leading || p.Waiting() > 0 {
		p.idle.Wait()
	}
}

// Lead makes the caller, which writes by itself, the leader. It holds the lock, which is given
// up meanwhile.
func (p *Pipeline[T]) Lead() {
	for p.leading {
		p.idle.Wait()
	}
	p.leading = true
}

// HandOff makes a caller that waits the leader, if any does. The caller is the leader, and holds the lock.
func (p *Pipeline[T]) HandOff() {
	for _, members := range [2][]T{p.queue, p.barriers} {
		for _, m := range members {
			if e := m.entry(); e.wake != nil {
				e.wake <- true
				return
			}
		}
	}
	// Those in the queue, if any, have not called Finish yet, and will lead.
	p.leading = false
	p.idle.Broadcast()
	p.env.Idle()
}

// leadGroup writes one group. The caller leads, and holds the lock, which is given
// up meanwhile.
func (p *Pipeline[T]) leadGroup() {
	g := p.form()
	p.Unlock()
	failed, err := p.write(g)
	p.Lock()
	p.flight = nil
	switch {
	case err == nil:
		p.published(g)
	case failed != 0 && p.env.Stopped() == nil:
		p.abortFrom(g, failed, err)
	case g.Unwritten && len(g.Members) > 0: // as if their pages had not been written
		p.abortFrom(g, g.Members[0].entry().Number, err)
	case g.Unwritten:
		p.env.Failed(g, nil, err)
		endAll(g.Barriers, err)
	default:
		p.abortAll(g, err)
	}
	clear(g.Members)
	clear(g.Barriers)
}

// form makes a group of all that waits.
func (p *Pipeline[T]) form() *Group[T] {
	g := &p.group
	*g = Group[T]{Members: append(g.Members[:0], p.queue...), Barriers: append(g.Barriers[:0], p.barriers...), Mode: None}
	clear(p.queue)
	clear(p.barriers)
	p.queue, p.barriers, p.bytes = p.queue[:0], p.barriers[:0], 0
	p.flight = g.Members
	for _, all := range [2][]T{g.Barriers, g.Members} {
		for _, m := range all {
			e := m.entry()
			g.Mode = min(g.Mode, e.Mode)
			g.Plain, g.Even, g.Anew = g.Plain || e.Plain, g.Even || e.Even, g.Anew || e.Anew
		}
	}
	p.env.Form(g)
	return g
}

// published ends what is durable, or visible as it is to be.
func (p *Pipeline[T]) published(g *Group[T]) {
	p.env.Published(g)
	endAll(g.Members, nil)
	endAll(g.Barriers, nil)
}

// abortFrom aborts the members of a group from transaction number on, whose pages
// could not be written, and all that stand on them. Those before go back into the
// queue, and the barriers are tried with them.
func (p *Pipeline[T]) abortFrom(g *Group[T], number page.TxID, err error) {
	n := 0
	for n < len(g.Members) && g.Members[n].entry().Number < number {
		n++
	}
	aborted := slices.Concat(g.Members[n:], p.queue)
	p.queue, p.bytes = p.queue[:0], 0
	for _, m := range g.Members[:n] {
		p.Join(m)
	}
	p.barriers = slices.Concat(g.Barriers, p.barriers)
	p.env.Failed(g, aborted, err)
	endAll(aborted, err)
}

// abortAll aborts whatever waits, because the writer was stopped.
func (p *Pipeline[T]) abortAll(g *Group[T], err error) {
	aborted := slices.Concat(g.Members, p.queue)
	barriers := slices.Concat(g.Barriers, p.barriers)
	p.queue, p.barriers, p.bytes = nil, nil, 0
	p.env.Failed(g, aborted, err)
	endAll(aborted, err)
	endAll(barriers, err)
}

func endAll[T Member](members []T, err error) {
	for _, m := range members {
		m.entry().end(err)
	}
}
