package space

import (
	"errors"
	"fmt"
	"iter"

	"holdfast/internal/page"
)

// ErrFull says that there is no page number left for an allocation.
var ErrFull = errors.New("no page number left")

// A Space holds the free and the pending pages of one file, the pinned states,
// and the high-water mark.
type Space struct {
	free      pageSet
	pending   extentSet // exactly the pages of the extents in the pins' heaps
	highWater page.ID   // first page number never used

	pins   ordered[pin]
	births births
	spare  heldPool

	open   *Txn      // being edited
	latest page.TxID // newest transaction that was committed and not rolled back
	idle   []*Txn    // recycled
}

// pin is a pinned state: how many hold it, and what it keeps from being free.
type pin struct {
	holders int
	heap    *held
}

// New returns the Space of a file whose pages below highWater are all in use. See
// Load for one with free pages.
func New(highWater page.ID) *Space {
	s := &Space{highWater: max(highWater, page.FirstDataPage)}
	s.free.init()
	s.pending.init()
	s.pins.init()
	s.births.entries.init()
	return s
}

// HighWater is the first page number that was never used. It includes what the
// transaction in edit allocated.
func (s *Space) HighWater() page.ID { return s.highWater }

// FreeCount is how many pages can be allocated without raising the high-water
// mark.
func (s *Space) FreeCount() uint64 { return s.free.count }

// PendingCount is how many pages were freed and are still held by a pinned
// state.
func (s *Space) PendingCount() uint64 { return s.pending.count }

// checkUsed returns an error unless all pages of e are in use.
func (s *Space) checkUsed(e page.Extent) error {
	if err := s.checkInside(e); err != nil {
		return err
	}
	if id, ok := s.free.next(e.Start, e.End(), true); ok {
		return page.Corruptf(id, "freed, but free already")
	}
	if run, ok := s.pending.runFrom(e.Start, e.End()); ok {
		return page.Corruptf(run.Start, "freed, but freed before")
	}
	return nil
}

// checkInside returns an error unless e are data pages below the high-water mark.
func (s *Space) checkInside(e page.Extent) error {
	limit := min(s.highWater, maxPages)
	switch {
	case e.N == 0:
		return page.Corruptf(e.Start, "free space names an empty extent")
	case e.Start < page.FirstDataPage:
		return page.Corruptf(e.Start, "free space names a meta page")
	case e.Start >= limit:
		return page.Corruptf(e.Start, "it is recorded as free, and is not a page of this database, whose last page is %d", s.highWater-1)
	case e.N > uint64(limit-e.Start):
		return page.Corruptf(limit, "%d pages from page %d on are recorded as free, and the last page of this database is %d", e.N, e.Start, s.highWater-1)
	}
	return nil
}

// Free yields the free pages as maximal runs in ascending order. The Space must
// not be changed meanwhile.
func (s *Space) Free() iter.Seq[page.Extent] { return s.free.runs() }

// Tail is how many free pages lie directly before the high-water mark.
func (s *Space) Tail() uint64 { return uint64(s.highWater - s.free.runBefore(s.highWater)) }

// FindFree is where the first run of n free pages begins, and whether there is
// one.
func (s *Space) FindFree(n uint64) (page.ID, bool) { return s.free.find(n) }

// Unused yields the free and the pending pages together, as maximal runs in
// ascending order: what a freelist page lists. Pages that the transaction in
// edit has freed are not among them before it commits. The Space must not be
// changed meanwhile.
func (s *Space) Unused() iter.Seq[page.Extent] {
	return func(yield func(page.Extent) bool) {
		a, okA := s.free.runFrom(0, maxPages)
		b, okB := s.pending.runFrom(0, maxPages)
		var run page.Extent
		for okA || okB {
			var e page.Extent
			if okA && (!okB || a.Start < b.Start) {
				e = a
				a, okA = s.free.runFrom(a.End(), maxPages)
			} else {
				e = b
				b, okB = s.pending.runFrom(b.End(), maxPages)
			}
			if run.N > 0 && run.End() == e.Start {
				run.N += e.N
				continue
			}
			if run.N > 0 && !yield(run) {
				return
			}
			run = e
		}
		if run.N > 0 {
			yield(run)
		}
	}
}

// IsUnused reports whether a page is free or pending.
func (s *Space) IsUnused(id page.ID) bool {
	_, pending := s.pending.around(id)
	return pending || s.free.contains(id)
}

// AnyFree is the first of the pages that is free.
func (s *Space) AnyFree(e page.Extent) (page.ID, bool) { return s.free.next(e.Start, e.End(), true) }

// AnyUnused reports whether one of the pages is free or pending.
func (s *Space) AnyUnused(e page.Extent) bool {
	if _, ok := s.free.next(e.Start, e.End(), true); ok {
		return true
	}
	_, ok := s.pending.runFrom(e.Start, e.End())
	return ok
}

// Pin records that the state is held that transaction tx made. Every Pin
// needs an Unpin of its own. A state that is not held can be pinned as long as
// no later transaction has committed; afterwards some of its pages may have
// been given away, and only what is left of it is kept.
func (s *Space) Pin(tx page.TxID) {
	if at, ok := s.pins.find(uint64(tx)); ok {
		s.pins.val(at).holders++
		return
	}
	s.pins.insert(uint64(tx), pin{holders: 1})
	if tx < s.latest {
		s.reattach(tx)
	}
}

// reattach restores the invariant of witnesses after a state was pinned unknown to
// a transaction that has freed pages: of what its predecessor was
// the witness, it becomes the witness where it can.
func (s *Space) reattach(tx page.TxID) {
	at, ok := s.pinnedBefore(tx)
	if !ok {
		return
	}
	older := s.pins.val(at)
	var stay, move, h *held
	for rest := older.heap; rest != nil; {
		h, rest = pop(rest)
		if h.born <= tx && tx < h.freed {
			move = meld(move, h)
		} else {
			stay = meld(stay, h)
		}
	}
	older.heap = stay
	at, _ = s.pins.find(uint64(tx))
	s.pins.val(at).heap = move
}

// pinnedBefore is the newest pinned state that is older than tx.
func (s *Space) pinnedBefore(tx page.TxID) (place, bool) {
	if tx == 0 {
		return place{}, false
	}
	return s.pins.floor(uint64(tx - 1))
}

// Unpin takes one Pin back. Pages that no other pinned state holds become free.
func (s *Space) Unpin(tx page.TxID) {
	at, ok := s.pins.find(uint64(tx))
	if !ok {
		panic(fmt.Sprintf("space: state %d is not pinned", tx))
	}
	p := s.pins.val(at)
	if p.holders--; p.holders > 0 {
		return
	}
	heap := p.heap
	s.pins.remove(at)
	s.handDown(heap, tx)
	oldest, pinned := s.pins.first()
	s.births.prune(page.TxID(oldest), pinned)
}

// handDown finds a new witness for everything whose witness was state tx, or
// releases it.
func (s *Space) handDown(heap *held, tx page.TxID) {
	at, ok := s.pinnedBefore(tx)
	for heap != nil && (!ok || uint64(heap.born) > s.pins.key(at)) {
		var h *held
		h, heap = pop(heap)
		s.pending.remove(h.extent)
		s.free.add(h.extent)
		s.spare.put(h)
	}
	if heap != nil {
		older := s.pins.val(at)
		older.heap = meld(older.heap, heap)
	}
}

// freedBy makes pages that transaction tx has freed pending, or free at once
// when no pinned state can reach them.
func (s *Space) freedBy(tx page.TxID, e page.Extent) {
	var witness uint64
	at, pinned := s.pinnedBefore(tx)
	if pinned {
		witness = s.pins.key(at)
	}
	for e.N > 0 {
		n, born := s.births.take(e)
		part := page.Extent{Start: e.Start, N: n}
		if pinned && uint64(born) <= witness {
			s.pending.add(part)
			p := s.pins.val(at)
			p.heap = meld(p.heap, s.spare.take(part, born, tx))
		} else {
			s.free.add(part)
		}
		e = page.Extent{Start: part.End(), N: e.N - n}
	}
}
