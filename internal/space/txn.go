package space

import (
	"errors"
	"fmt"

	"holdfast/internal/page"
)

// A Txn is what one transaction does to the free space.
//
//	Begin ── edited ──Commit── committed ──Recycle──▸ (reused by Begin)
//	             │                 │
//	             └────Rollback─────┴──▸ rolled back ──Recycle──▸
//
// While it is edited, what it allocates is taken from the Space at once; what it
// frees stays in use until Commit, except pages that it allocated itself.
type Txn struct {
	space    *Space
	tx       page.TxID
	previous page.TxID // the Space's latest when this one began
	base     page.ID   // high-water mark at the beginning
	high     page.ID   // high-water mark at Commit or Rollback
	state    txnState

	own   extentSet // allocated and not freed again
	freed extentSet // freed and not allocated by itself; disjoint from own

	allocatedBuf, freedBuf []page.Extent // reused results
}

type txnState int

const (
	edited txnState = iota
	committed
	rolledBack
	recycled
)

// Bounds on what is kept of recycled transactions.
const (
	maxIdleTxns    = 64
	maxIdleExtents = 1024
)

// Begin starts the transaction with number tx, which must be above those of all
// transactions that were committed and not rolled back. One transaction at a
// time is edited: the one before must have been committed or rolled back.
func (s *Space) Begin(tx page.TxID) *Txn {
	if s.open != nil || tx <= s.latest {
		panic(fmt.Sprintf("space: begin transaction %d after %d, one in edit: %t", tx, s.latest, s.open != nil))
	}
	var t *Txn
	if last := len(s.idle) - 1; last >= 0 {
		t = s.idle[last]
		s.idle = s.idle[:last]
	} else {
		t = &Txn{space: s}
		t.own.init()
		t.freed.init()
	}
	t.tx, t.previous, t.base, t.state = tx, s.latest, s.highWater, edited
	s.open = t
	return t
}

// must panics unless the transaction is in the state that a call needs.
func (t *Txn) must(state txnState, call string) {
	if t.state != state {
		panic(fmt.Sprintf("space: %s: transaction %d is not in a state for it", call, t.tx))
	}
}

// Allocate takes n consecutive pages, n at least 1, and returns the first. It
// takes the first run of free pages that is long enough, or else raises the
// high-water mark by n. It returns ErrFull when page numbers run out.
func (t *Txn) Allocate(n uint64) (page.ID, error) {
	t.must(edited, "Allocate")
	if n == 0 {
		return 0, errors.New("allocate 0 pages")
	}
	if id, ok := t.space.free.find(n); ok {
		e := page.Extent{Start: id, N: n}
		t.space.free.remove(e)
		t.own.add(e)
		return id, nil
	}
	return t.Rise(n)
}

// Risen is by how many pages the transaction has raised the high-water mark.
func (t *Txn) Risen() uint64 {
	t.must(edited, "Risen")
	return uint64(t.space.highWater - min(t.base, t.space.highWater))
}

// Rise takes n consecutive pages, n at least 1, by raising the high-water mark, and
// returns the first. It returns ErrFull when page numbers run out.
func (t *Txn) Rise(n uint64) (page.ID, error) {
	t.must(edited, "Rise")
	s := t.space
	if s.highWater > maxPages || n > uint64(maxPages-s.highWater) {
		return 0, fmt.Errorf("allocate %d pages above page %d: %w", n, s.highWater, ErrFull)
	}
	e := page.Extent{Start: s.highWater, N: n}
	s.highWater = e.End()
	t.own.add(e)
	return e.Start, nil
}

// Lower lets the high-water mark fall to the page after the last one that is not free, and
// returns it: the pages after that exist no more. A page that some pinned state can
// reach is not free, nor is one that this transaction has freed and not allocated.
func (t *Txn) Lower() page.ID {
	t.must(edited, "Lower")
	s := t.space
	if low := max(s.free.runBefore(s.highWater), page.FirstDataPage); low < s.highWater {
		s.free.remove(page.Extent{Start: low, N: uint64(s.highWater - low)})
		s.highWater = low
	}
	return s.highWater
}

// Take takes the pages of e, at least one, if all of them are free, and tells whether
// it did.
func (t *Txn) Take(e page.Extent) bool {
	t.must(edited, "Take")
	s := t.space
	if e.Start >= s.highWater || e.N > uint64(s.highWater-e.Start) {
		return false
	}
	if _, used := s.free.next(e.Start, e.End(), false); used {
		return false
	}
	s.free.remove(e)
	t.own.add(e)
	return true
}

// Owns tells whether the transaction has allocated page id and not freed it again.
func (t *Txn) Owns(id page.ID) bool {
	_, ok := t.own.around(id)
	return ok
}

// Free gives pages back. Those that this transaction allocated can be allocated
// again at once, the others stay as they are until Commit. It returns a
// *page.CorruptError, and changes nothing, when a page lies outside of the
// file's data pages, is not in use, or was freed by this transaction before.
func (t *Txn) Free(e page.Extent) error {
	t.must(edited, "Free")
	s := t.space
	if err := s.checkUsed(e); err != nil {
		return err
	}
	if run, ok := t.freed.runFrom(e.Start, e.End()); ok {
		return page.Corruptf(run.Start, "freed twice in one transaction")
	}
	for at := e.Start; at < e.End(); {
		run, ok := t.own.runFrom(at, e.End())
		if !ok {
			run = page.Extent{Start: e.End()}
		}
		if run.Start > at {
			t.freed.add(page.Extent{Start: at, N: uint64(run.Start - at)})
		}
		if ok {
			t.own.remove(run)
			s.free.add(run)
		}
		at = run.End()
	}
	return nil
}

// Allocated lists, as maximal runs in ascending order, the pages that this
// transaction took out of the unused set: what was unused before it and is not
// after it. Pages from above the old high-water mark were never in the set. The
// slice is valid until the next call or until Recycle.
func (t *Txn) Allocated() []page.Extent {
	out := t.allocatedBuf[:0]
	for e, ok := t.own.runFrom(0, t.base); ok; e, ok = t.own.runFrom(e.End(), t.base) {
		out = append(out, e)
	}
	t.allocatedBuf = out
	return out
}

// Freed lists, as maximal runs in ascending order, the pages that this
// transaction put into the unused set: what is unused after it and was not
// before it. Pages above the old high-water mark that it allocated and freed
// again are among them. The slice is valid until the next call or until
// Recycle.
func (t *Txn) Freed() []page.Extent {
	out := t.freedBuf[:0]
	for e, ok := t.freed.runFrom(0, t.base); ok; e, ok = t.freed.runFrom(e.End(), t.base) {
		out = append(out, e)
	}
	high := t.HighWater()
	for e, ok := t.own.gapFrom(t.base, high); ok; e, ok = t.own.gapFrom(e.End(), high) {
		if last := len(out) - 1; last >= 0 && out[last].End() == e.Start {
			out[last].N += e.N
		} else {
			out = append(out, e)
		}
	}
	t.freedBuf = out
	return out
}

// HighWater is the high-water mark as this transaction leaves it.
func (t *Txn) HighWater() page.ID {
	if t.state == edited {
		return t.space.highWater
	}
	return t.high
}

// Commit makes the freed pages pending, or free where no pinned state can reach
// them. The next transaction can begin on top of this one. A caller that may have to
// roll this one back must have its predecessor's state pinned by now.
func (t *Txn) Commit() {
	t.must(edited, "Commit")
	s := t.space
	for e, ok := t.freed.runFrom(0, maxPages); ok; e, ok = t.freed.runFrom(e.End(), maxPages) {
		s.freedBy(t.tx, e)
	}
	oldest, pinned := s.pins.first()
	if pinned && page.TxID(oldest) < t.tx {
		for e, ok := t.own.runFrom(0, maxPages); ok; e, ok = t.own.runFrom(e.End(), maxPages) {
			s.births.record(e, t.tx)
		}
		s.births.sweep(page.TxID(oldest))
	}
	t.high, t.state = s.highWater, committed
	s.latest, s.open = t.tx, nil
}

// Rollback undoes the transaction. After Commit that is possible as long as
// every later transaction was rolled back and the state before this one was
// pinned all the time, so that nothing that this one freed has been given away;
// anything else panics. Pins of its own state can be taken back before or after.
func (t *Txn) Rollback() {
	s := t.space
	switch {
	case t.state == edited:
		s.open = nil
	case t.state == committed && s.open == nil && s.latest == t.tx:
		t.unfree()
		for e, ok := t.own.runFrom(0, maxPages); ok; e, ok = t.own.runFrom(e.End(), maxPages) {
			s.births.forget(e)
		}
		s.latest = t.previous
	default:
		panic(fmt.Sprintf("space: transaction %d cannot be rolled back now", t.tx))
	}
	for e, ok := t.own.runFrom(0, t.base); ok; e, ok = t.own.runFrom(e.End(), t.base) {
		s.free.add(e)
	}
	for e, ok := t.own.gapFrom(t.base, s.highWater); ok; e, ok = t.own.gapFrom(e.End(), s.highWater) {
		s.free.remove(e)
	}
	if s.highWater < t.base { // it was lowered
		s.free.add(page.Extent{Start: s.highWater, N: uint64(t.base - s.highWater)})
	}
	t.high, s.highWater = s.highWater, t.base
	t.state = rolledBack
}

// unfree puts the freed pages of a committed transaction back in use. They are
// the whole heap of the state before it: what other transactions freed has an
// older witness, or was freed later and has been rolled back.
func (t *Txn) unfree() {
	if t.freed.count == 0 {
		return
	}
	s := t.space
	at, ok := s.pinnedBefore(t.tx)
	if !ok {
		panic(fmt.Sprintf("space: roll back transaction %d, but the state before it is not pinned", t.tx))
	}
	oldest, _ := s.pins.first()
	p := s.pins.val(at)
	rest, pages := p.heap, uint64(0)
	p.heap = nil
	for rest != nil {
		var h *held
		h, rest = pop(rest)
		if h.freed != t.tx {
			panic(fmt.Sprintf("space: roll back transaction %d, but what %d freed is still there", t.tx, h.freed))
		}
		s.pending.remove(h.extent)
		if uint64(h.born) > oldest {
			s.births.record(h.extent, h.born)
		}
		pages += h.extent.N
		s.spare.put(h)
	}
	if pages != t.freed.count {
		panic(fmt.Sprintf("space: roll back transaction %d, but %d of the %d pages that it freed were given away", t.tx, t.freed.count-pages, t.freed.count))
	}
}

// Recycle says that a committed or rolled back transaction will not be used any
// more, neither to roll it back nor to list what it did; a later Begin reuses its
// memory. Calling it is optional.
func (t *Txn) Recycle() {
	if t.state != committed && t.state != rolledBack {
		t.must(committed, "Recycle")
	}
	t.own.clear()
	t.freed.clear()
	t.state = recycled
	if cap(t.allocatedBuf) > maxIdleExtents || cap(t.freedBuf) > maxIdleExtents {
		t.allocatedBuf, t.freedBuf = nil, nil
	}
	if s := t.space; len(s.idle) < maxIdleTxns {
		s.idle = append(s.idle, t)
	}
}
