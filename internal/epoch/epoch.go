// Package epoch knows which states of a database are held by readers. It knows nothing of
// pages and files: a state is a value of any type.
//
// One writer publishes states, one after the other. Readers acquire the current
// one and release it when they are done. A state that is no longer current and
// that is not held is retired, exactly once, by the writer.
//
// Acquire and Release take no lock and allocate nothing. Each state carries
// counters of its own, one per shard, so that readers on different processors
// seldom touch the same cache line:
//
//	Acquire:  load current ── add one to a shard ── still current? ── hold it
//	               ▲                                     │ no
//	               └────── take it back on that shard ◂──┘
//	Release:  subtract one on the shard that the guard remembers
//
// # Why a retired state is not held
//
// A guard exists only if its Acquire saw the state current after it had counted
// itself. A state becomes current once, when it is published, and never again.
// So all counts that will ever belong to a guard are in their shards before the
// state ceases to be current, and each stays in its shard until its guard is
// released: what is added to a shard is subtracted on the same one. The writer
// reads the shards after the switch. When it reads zero in a shard, no reader holds
// the state through this shard, and none ever will; when it has read zero in
// every shard, one pass over them, no reader holds the state.
//
// An Acquire that loaded the state before the switch may still add to a shard
// and take that back, even of a retired state. It does not look at the value. It
// can delay retirement to the next Sweep and does no other harm, because a
// state's memory is never used for another one: the garbage collector owns it.
//
// All of this relies on Go's atomic operations being sequentially consistent.
package epoch

import (
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An Epoch is a sequence of states with values of type T. It is made with New.
//
// Acquire, Current, Counts, OldestHeld, and the methods of Guard can be called from
// any goroutine. The other methods are the writer's: calls of them must not
// overlap.
type Epoch[T any] struct {
	current atomic.Pointer[state[T]] // nil from Close on
	mask    uint32                   // number of shards - 1
	wake    chan struct{}            // tells the waiter that a count fell to zero after Close
	retire  func(*T)

	// The states that are not retired, oldest first. The writer changes the
	// list; the lock is for those who only count.
	mu     sync.Mutex
	oldest *state[T]
	newest *state[T]
	// past counts the acquisitions that no longer stand in a shard.
	past atomic.Uint64

	walks []*walk[T] // through the list, that pause or go on; by mu

	hand *state[T] // where the next Sweep begins; nil: at the oldest
}

// A walk goes through the states from the oldest on, and lets the lock go now and then: so
// who publishes waits for a few states, however many are held.
type walk[T any] struct {
	at    *state[T] // the next to visit; nil: there is none
	twice uint64    // acquisitions of states that were visited, and are in Epoch.past since
}

// A state is immutable but for its counters and its links.
type state[T any] struct {
	value  T
	shards []shard
	epoch  *Epoch[T]

	older, newer *state[T] // by Epoch.mu
	number       uint64    // ascending from the oldest to the newest
	replaced     time.Time // when the next state was published; by Epoch.mu
}

// A shard counts on a cache line of its own (128 bytes, because some processors
// fetch lines in pairs). The low 32 bits are the guards that hold the state
// through this shard, the high 32 bits the acquisitions that went through it.
type shard struct {
	count atomic.Uint64
	_     [120]byte
}

const (
	oneHeld     = 1
	oneAcquired = 1<<32 | oneHeld

	// When the acquisitions of a shard reach half of what it can count, a
	// quarter is moved to Epoch.past. Enough stays for every Acquire
	// that may yet take its own back.
	almostFull = 1 << 63
	quarter    = 1 << 30

	// maxHeld is more guards than memory has room for. A count above it has
	// fallen below zero.
	maxHeld = 1 << 31

	maxShards = 64

	// sweepStates is how many states one Sweep looks at, at most.
	sweepStates = 64
)

func held(count uint64) uint32 { return uint32(count) }

// New returns an Epoch whose current state has the value first. The writer's
// goroutine calls retire exactly once for each state, when the state is not
// current any more and not held. Retire must not call the Epoch's
// methods.
func New[T any](first T, retire func(*T)) *Epoch[T] {
	shards := 1
	for shards < runtime.GOMAXPROCS(0) && shards < maxShards {
		shards *= 2
	}
	e := &Epoch[T]{mask: uint32(shards - 1), wake: make(chan struct{}, 1), retire: retire}
	e.Publish(first)
	return e
}

// Acquire holds the current state until the guard is released. It returns false
// after Close.
func (e *Epoch[T]) Acquire() (Guard[T], bool) {
	for {
		s := e.current.Load()
		if s == nil {
			return Guard[T]{}, false
		}
		i := rand.Uint32() & e.mask
		count := s.shards[i].count.Add(oneAcquired)
		if e.current.Load() == s {
			if count >= almostFull {
				e.drain(&s.shards[i])
			}
			return Guard[T]{state: s, shard: i}, true
		}
		s.subtract(i, oneAcquired)
	}
}

// drain moves acquisitions out of a shard before it overflows.
func (e *Epoch[T]) drain(s *shard) {
	count := s.count.Load()
	if count >= almostFull && s.count.CompareAndSwap(count, count-quarter<<32) {
		e.past.Add(quarter)
	}
}

// subtract takes a count back on the shard to which it was added.
//
// After Close a caller may wait for that. Close clears current first
// and reads the shard then; here the shard is changed first and current is read
// then. So at least one of the two sees what the other did: either the closer
// finds the shard at zero, or this finds the Epoch closed and leaves a token.
// When a token is there already, it will be taken after this, and the closer
// reads the shard again after it took one.
func (s *state[T]) subtract(i uint32, n uint64) {
	left := held(s.shards[i].count.Add(-n))
	if left > maxHeld {
		panic("epoch: guard released twice")
	}
	if left == 0 && s.epoch.current.Load() == nil {
		select {
		case s.epoch.wake <- struct{}{}:
		default:
		}
	}
}

// A Guard holds a state. The zero Guard holds none and must not be used.
type Guard[T any] struct {
	state *state[T]
	shard uint32
}

// Value is the value of the state. It must not be used after Release.
func (g Guard[T]) Value() *T { return &g.state.value }

// Release lets the state go. It must be called exactly once for each Acquire,
// on whichever copy of the Guard and from any goroutine.
func (g Guard[T]) Release() { g.state.subtract(g.shard, oneHeld) }

// Current is the value that was published last, or nil after Close. It is held
// by no reader: only the writer can use what it points to without an Acquire.
func (e *Epoch[T]) Current() *T {
	if s := e.current.Load(); s != nil {
		return &s.value
	}
	return nil
}

// Publish makes v the value of the current state. It must not be called after
// Close.
func (e *Epoch[T]) Publish(v T) {
	s := &state[T]{value: v, shards: make([]shard, e.mask+1), epoch: e}
	now := time.Now()
	e.mu.Lock()
	s.older = e.newest
	if s.older != nil {
		s.number = s.older.number + 1
		s.older.newer = s
		s.older.replaced = now
	} else {
		e.oldest = s
	}
	e.newest = s
	e.mu.Unlock()
	e.current.Store(s)
}

// Sweep retires states that are not held. One call looks at a bounded number of
// states and the next goes on from there, so that the cost does not grow with
// the number of states held.
func (e *Epoch[T]) Sweep() {
	current := e.current.Load()
	s, first := e.hand, (*state[T])(nil)
	for range sweepStates {
		if s == nil || s == current {
			s = e.oldest // go round
		}
		if s == nil || s == current || s == first {
			break
		}
		next := s.newer
		if acquired, ok := s.idle(); ok {
			e.unlink(s, acquired)
		} else if first == nil {
			first = s
		}
		s = next
	}
	e.hand = s
}

// SweepAll is Sweep of all states, in time in proportion to their number.
func (e *Epoch[T]) SweepAll() {
	current := e.current.Load()
	for s := e.oldest; s != nil && s != current; {
		next := s.newer
		if acquired, ok := s.idle(); ok {
			e.unlink(s, acquired)
		}
		s = next
	}
	e.hand = nil
}

// idle reports whether no state that is not current is held, and if so how
// many acquisitions its shards have counted. Both come from the same reading: a
// shard through which nothing is held counts no Acquire that will take itself back.
func (s *state[T]) idle() (acquired uint64, ok bool) {
	for i := range s.shards {
		count := s.shards[i].count.Load()
		if held(count) != 0 {
			return 0, false
		}
		acquired += count >> 32
	}
	return acquired, true
}

// unlink takes an idle state off the list and retires it.
func (e *Epoch[T]) unlink(s *state[T], acquired uint64) {
	e.mu.Lock()
	if s.older != nil {
		s.older.newer = s.newer
	} else {
		e.oldest = s.newer
	}
	if s.newer != nil {
		s.newer.older = s.older
	} else {
		e.newest = s.older
	}
	e.past.Add(acquired)
	for _, w := range e.walks {
		if w.at == s {
			w.at = s.newer
		} else if w.at == nil || s.number < w.at.number {
			w.twice += acquired
		}
	}
	e.mu.Unlock()
	s.older, s.newer = nil, nil
	e.retire(&s.value)
}

// walk calls visit for the states that are not retired, oldest first, until it returns false;
// pause, if it is not nil, each time that the lock was let go. Then it calls end. Visit and end
// have the lock.
func (e *Epoch[T]) walk(visit func(*state[T]) bool, end func(w *walk[T]), pause func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := &walk[T]{at: e.oldest}
	e.walks = append(e.walks, w)
	defer func() {
		e.walks = slices.DeleteFunc(e.walks, func(other *walk[T]) bool { return other == w })
	}()
	for n := 1; w.at != nil; n++ {
		s := w.at
		if w.at = s.newer; !visit(s) {
			break
		}
		if n%sweepStates == 0 {
			e.mu.Unlock()
			if pause != nil {
				pause()
			}
			e.mu.Lock()
		}
	}
	end(w)
}

// Counts are about how many guards there are, and how many there have ever been. It takes
// time in proportion to the states that are held, and keeps no caller waiting for that.
func (e *Epoch[T]) Counts() (now int64, ever uint64) { return e.counts(nil) }

func (e *Epoch[T]) counts(pause func()) (now int64, ever uint64) {
	e.walk(func(s *state[T]) bool {
		for i := range s.shards {
			count := s.shards[i].count.Load()
			now += int64(held(count))
			ever += count >> 32
		}
		return true
	}, func(w *walk[T]) { ever += e.past.Load() - w.twice }, pause)
	return now, ever
}

// OldestHeld is the oldest value that a guard holds, if that is not the current one, and
// when the one after it was published. It takes time in proportion to the states that are
// not retired, and keeps no caller waiting for that.
func (e *Epoch[T]) OldestHeld() (oldest *T, replaced time.Time) {
	current := e.current.Load()
	e.walk(func(s *state[T]) bool {
		if s == current || s.newer == nil {
			return false
		}
		if _, idle := s.idle(); !idle {
			oldest, replaced = &s.value, s.replaced
		}
		return oldest == nil
	}, func(*walk[T]) {}, nil)
	return oldest, replaced
}

// All yields the values of the states that are not retired, oldest first. It is the
// writer's to call, who must not change anything meanwhile.
func (e *Epoch[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for s := e.oldest; s != nil; s = s.newer {
			if !yield(&s.value) {
				return
			}
		}
	}
}

// Close ends acquisition: no Acquire succeeds that begins after it. The writer
// calls it, publishes nothing afterwards, and then calls wait, once, which
// returns when every guard was released and every state retired. Between the
// two it can do other things, Sweep among them.
//
// An Acquire that runs at the same time either saw its state current before
// Close cleared it, and then its count stands in a shard and is waited for; or
// it finds no state, takes its count back and fails.
func (e *Epoch[T]) Close() (wait func()) {
	e.current.Store(nil)
	return e.drainStates
}

// drainStates waits for the states one after the other. None can be acquired any
// more, so it need not look twice at one that was idle.
func (e *Epoch[T]) drainStates() {
	for e.oldest != nil {
		if acquired, ok := e.oldest.idle(); ok {
			e.unlink(e.oldest, acquired)
		} else {
			<-e.wake
		}
	}
	e.hand = nil
}
