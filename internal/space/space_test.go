package space

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/page"
)

func ext(start, n uint64) page.Extent { return page.Extent{Start: page.ID(start), N: n} }

// loaded is a Space with free pages.
func loaded(t testing.TB, highWater page.ID, free ...page.Extent) *Space {
	t.Helper()
	l := Load(highWater)
	for _, e := range free {
		if err := l.Put(e); err != nil {
			t.Fatal(err)
		}
	}
	return l.Space()
}

func mustFree(t testing.TB, x *Txn, e page.Extent) {
	t.Helper()
	if err := x.Free(e); err != nil {
		t.Fatal(err)
	}
}

func mustAllocate(t testing.TB, x *Txn, n uint64) page.ID {
	t.Helper()
	id, err := x.Allocate(n)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func wantCorrupt(t *testing.T, err error, id page.ID) {
	t.Helper()
	var corrupt *page.CorruptError
	if !errors.As(err, &corrupt) || corrupt.Page != id {
		t.Errorf("got %v, want a CorruptError of page %d", err, id)
	}
}

func mustPanic(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", name)
		}
	}()
	f()
}

func TestFreeErrorsChangeNothing(t *testing.T) {
	s := loaded(t, 100, ext(10, 5))
	s.Pin(1)
	a := s.Begin(2)
	mustFree(t, a, ext(20, 5))
	a.Commit()
	b := s.Begin(3)
	mustFree(t, b, ext(30, 5))
	own := mustAllocate(t, b, 2)
	mustFree(t, b, ext(uint64(own), 2))
	wantCorrupt(t, b.Free(ext(uint64(own), 1)), own)
	wantCorrupt(t, b.Free(ext(5, 10)), own)
	wantCorrupt(t, b.Free(ext(16, 10)), 20)
	wantCorrupt(t, b.Free(ext(26, 10)), 30)
	wantCorrupt(t, b.Free(ext(90, 11)), 100)
	wantCorrupt(t, b.Free(ext(40, 0)), 40)
	if got := b.Freed(); !slices.Equal(got, []page.Extent{ext(30, 5)}) || len(b.Allocated()) > 0 {
		t.Fatalf("freed %v, allocated %v", got, b.Allocated())
	}
	b.Commit()
	if s.FreeCount() != 5 || s.PendingCount() != 10 {
		t.Fatalf("free %d, pending %d", s.FreeCount(), s.PendingCount())
	}
	s.Unpin(1)
	if s.FreeCount() != 15 || s.PendingCount() != 0 {
		t.Fatalf("free %d, pending %d", s.FreeCount(), s.PendingCount())
	}
}

func TestAllocateErrors(t *testing.T) {
	for _, high := range []page.ID{maxPages - 5, maxPages, maxPages + 1, page.NoFreelist} {
		s := New(high)
		s.Pin(0)
		x := s.Begin(1)
		if _, err := x.Allocate(0); err == nil {
			t.Error("allocated 0 pages")
		}
		for _, n := range []uint64{6, 1 << 62, ^uint64(0)} {
			if _, err := x.Allocate(n); !errors.Is(err, ErrFull) {
				t.Errorf("allocate %d above %d: %v", n, high, err)
			}
		}
		if s.HighWater() != high || s.IsUnused(high) || s.IsUnused(page.NoFreelist) {
			t.Error("a refused allocation has changed something")
		}
		mustFree(t, x, ext(7, 1))
		mustFree(t, x, ext(maxPages-8, 3))
		x.Commit()
		s.Unpin(0)
		if got := slices.Collect(s.Unused()); !slices.Equal(got, []page.Extent{ext(7, 1), ext(maxPages-8, 3)}) {
			t.Errorf("unused %v", got)
		}
	}
}

func TestMisusePanics(t *testing.T) {
	s := New(100)
	s.Pin(1)
	mustPanic(t, "unpin what is not pinned", func() { s.Unpin(2) })
	a := s.Begin(2)
	mustPanic(t, "two in edit", func() { s.Begin(3) })
	mustPanic(t, "recycle in edit", a.Recycle)
	mustFree(t, a, ext(10, 1))
	a.Commit()
	mustPanic(t, "commit twice", a.Commit)
	mustPanic(t, "allocate after commit", func() { _, _ = a.Allocate(1) })
	mustPanic(t, "free after commit", func() { _ = a.Free(ext(11, 1)) })
	mustPanic(t, "number used again", func() { s.Begin(2) })
	b := s.Begin(3)
	mustPanic(t, "roll back below one in edit", a.Rollback)
	b.Commit()
	mustPanic(t, "roll back out of order", a.Rollback)
	b.Rollback()
	mustPanic(t, "roll back twice", b.Rollback)
	s.Unpin(1)
	mustPanic(t, "roll back what was given away", a.Rollback)
}

// The pages of a deleted reader's view are released one state at a time, and
// only those that no other reader sees.
func TestLongReaderPinsWhatItSees(t *testing.T) {
	s := New(1000)
	s.Pin(10) // the long reader
	var owned page.Extent
	for tx := page.TxID(11); tx < 200; tx++ {
		s.Pin(tx - 1) // the durable state
		x := s.Begin(tx)
		if owned.N > 0 {
			mustFree(t, x, owned)
		}
		owned = page.Extent{Start: mustAllocate(t, x, 3), N: 3}
		if tx == 11 {
			mustFree(t, x, ext(100, 50))
		}
		x.Commit()
		x.Recycle()
		s.Unpin(tx - 1)
		if s.PendingCount() > 50 || s.HighWater() > 1006 {
			t.Fatalf("transaction %d: %d pages pending, high-water mark %d", tx, s.PendingCount(), s.HighWater())
		}
	}
	if s.PendingCount() != 50 {
		t.Fatalf("%d pages pending", s.PendingCount())
	}
	s.Unpin(10)
	if s.PendingCount() != 0 {
		t.Fatalf("%d pages pending", s.PendingCount())
	}
}

// What is remembered about allocations does not grow with their number, with a
// reader that stays behind (first) and without.
func TestBirthsAreBounded(t *testing.T) {
	for _, lag := range []page.TxID{0, 1, 50, 1_000_000} {
		s := New(2)
		rng := rand.New(rand.NewPCG(uint64(lag), 0))
		var live []page.ID
		s.Pin(0)
		for tx := page.TxID(1); tx < 20_000; tx++ {
			x := s.Begin(tx)
			for range 4 {
				live = append(live, mustAllocate(t, x, 1))
			}
			for len(live) > 500 {
				i := rng.IntN(len(live))
				mustFree(t, x, page.Extent{Start: live[i], N: 1})
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
			}
			x.Commit()
			x.Recycle()
			s.Pin(tx)
			switch {
			case lag == 1_000_000 && tx > 1:
				s.Unpin(tx - 1) // state 0 stays
			case tx > lag:
				s.Unpin(tx - 1 - lag)
			}
			if n := s.births.entries.size; n > 500+3*blockSize {
				t.Fatalf("lag %d: %d births remembered for 500 pages", lag, n)
			}
		}
		if lag == 0 && s.births.entries.size != 0 {
			t.Errorf("%d births remembered though nobody asks", s.births.entries.size)
		}
		if high := s.HighWater(); lag != 50 && high > 520 {
			t.Errorf("lag %d: high-water mark %d for 500 pages", lag, high)
		}
	}
}

// Of a file that grows while readers follow each other closely, so that there is
// always one that is a little behind, only the young births are remembered.
func TestOldBirthsAreSwept(t *testing.T) {
	const lag = 5
	s := New(2)
	s.Pin(0)
	for tx := page.TxID(1); tx < 5000; tx++ {
		x := s.Begin(tx)
		for range 10 {
			id := mustAllocate(t, x, 3)
			mustFree(t, x, page.Extent{Start: id + 1, N: 1}) // so that runs do not join
		}
		x.Commit()
		x.Recycle()
		s.Pin(tx)
		if tx > lag {
			s.Unpin(tx - 1 - lag)
		}
		if n := s.births.entries.size; n > 4*blockSize {
			t.Fatalf("transaction %d: %d births remembered", tx, n)
		}
		if err := checkOrder(&s.births.entries); err != nil {
			t.Fatal(err)
		}
	}
}

// A sweep keeps what is younger than the oldest pinned state, if only by one.
func TestSweepKeepsTheYoung(t *testing.T) {
	const old, young = 2, 3 // states; old stays pinned
	s := New(10_000)
	s.Pin(1)
	s.Pin(old)
	allocated := map[page.TxID][]page.ID{}
	for tx := page.TxID(1); tx <= 6; tx++ {
		s.Pin(tx)
		x := s.Begin(tx + 1)
		for range 200 {
			allocated[tx+1] = append(allocated[tx+1], mustAllocate(t, x, 2)+1)
		}
		for _, id := range allocated[tx+1] {
			mustFree(t, x, page.Extent{Start: id - 1, N: 1})
		}
		x.Commit()
		s.Unpin(tx)
		if tx == 3 {
			s.Unpin(1)
		}
	}
	s.Pin(7)
	free := s.FreeCount()
	x := s.Begin(8)
	for _, tx := range []page.TxID{old, young} {
		for _, id := range allocated[tx] {
			mustFree(t, x, page.Extent{Start: id, N: 1})
		}
	}
	x.Commit()
	s.Unpin(7)
	if got := s.FreeCount() - free; got != 200 || s.PendingCount() != 200 {
		t.Fatalf("%d pages released and %d pending, want 200 and 200", got, s.PendingCount())
	}
}

// A rollback puts back not only the pages but also what is known about them.
func TestRollbackRestoresBirths(t *testing.T) {
	s := New(100)
	s.Pin(1)
	x := s.Begin(2)
	e := page.Extent{Start: mustAllocate(t, x, 4), N: 4}
	x.Commit()
	s.Pin(2)
	for range 3 {
		x = s.Begin(3)
		mustFree(t, x, page.Extent{Start: e.Start + 1, N: 2})
		x.Commit()
		x.Rollback()
	}
	x = s.Begin(3)
	mustFree(t, x, e)
	x.Commit()
	s.Unpin(2)
	if s.FreeCount() != 4 || s.PendingCount() != 0 {
		t.Fatalf("%d pages free, %d pending; state 1 does not see them", s.FreeCount(), s.PendingCount())
	}
}

// A state that is pinned late, when a later transaction has committed, keeps
// what is left of it.
func TestLatePin(t *testing.T) {
	s := New(100)
	s.Pin(1)
	for tx := page.TxID(2); tx < 6; tx++ {
		x := s.Begin(tx)
		mustFree(t, x, ext(uint64(tx)*10, 5))
		x.Commit()
	}
	s.Pin(3)
	s.Unpin(1)
	if err := checkInside(s); err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Collect(s.Free()), []page.Extent{ext(20, 5), ext(30, 5)}; !slices.Equal(got, want) {
		t.Fatalf("free %v, want %v", got, want)
	}
	s.Unpin(3)
	if s.PendingCount() != 0 {
		t.Fatal("pages left over")
	}
}

// Ten thousand states, let go in various orders.
func TestManyPins(t *testing.T) {
	const states = 10_000
	up := make([]page.TxID, states)
	for i := range up {
		up[i] = page.TxID(i)
	}
	down := slices.Clone(up)
	slices.Reverse(down)
	random := slices.Clone(up)
	rand.New(rand.NewPCG(1, 2)).Shuffle(states, func(i, j int) { random[i], random[j] = random[j], random[i] })
	for name, order := range map[string][]page.TxID{"up": up, "down": down, "random": random} {
		s := New(100_000)
		s.Pin(0)
		for tx := page.TxID(1); tx < states; tx++ {
			x := s.Begin(tx)
			mustFree(t, x, ext(uint64(tx)*7, 5))                    // visible to all states before
			id := mustAllocate(t, x, 1)                             // visible from here on
			mustFree(t, x, ext(uint64(id)-min(uint64(tx)-1, 1), 1)) // the one that the previous one left
			x.Commit()
			x.Recycle()
			s.Pin(tx)
		}
		for i, tx := range order {
			s.Unpin(tx)
			if i%1000 == 0 {
				if err := checkInside(s); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
		if s.PendingCount() != 0 || s.pins.size != 0 || s.births.entries.size != 0 {
			t.Errorf("%s: %d pending, %d pins, %d births", name, s.PendingCount(), s.pins.size, s.births.entries.size)
		}
	}
}

// Runs of 2^32 pages and more cost no more than small ones.
func TestHugeRuns(t *testing.T) {
	s := New(3)
	s.Pin(0)
	x := s.Begin(1)
	const huge = 1<<32 + 12345
	var runs []page.Extent
	for range 8 {
		runs = append(runs, page.Extent{Start: mustAllocate(t, x, huge), N: huge})
	}
	if got := x.HighWater(); got != 3+8*huge {
		t.Fatalf("high-water mark %d", got)
	}
	mustFree(t, x, runs[6])
	mustFree(t, x, runs[2])
	x.Commit()
	s.Pin(1)
	y := s.Begin(2)
	if id := mustAllocate(t, y, huge-1); id != runs[2].Start {
		t.Fatalf("allocated %d", id)
	}
	if id := mustAllocate(t, y, huge); id != runs[6].Start {
		t.Fatalf("allocated %d", id)
	}
	mustFree(t, y, page.Extent{Start: runs[3].Start + 5, N: 2 * huge})
	y.Commit()
	if s.FreeCount() != 1 || s.PendingCount() != 2*huge {
		t.Fatalf("%d pages free, %d pending", s.FreeCount(), s.PendingCount())
	}
	if got, limit := nodeCount(s.free.root), 200; got > limit {
		t.Errorf("%d nodes, want at most %d", got, limit)
	}
	y.Rollback()
	x.Rollback()
	if s.FreeCount() != 0 || s.HighWater() != 3 {
		t.Fatalf("%d pages free, high-water mark %d", s.FreeCount(), s.HighWater())
	}
	if err := checkInside(s); err != nil {
		t.Fatal(err)
	}
}

func nodeCount(n *node) int {
	count := 1
	for _, c := range n.child {
		if c != nil {
			count += nodeCount(c)
		}
	}
	return count
}

// The ordered map against a slice.
func TestOrdered(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, grow := range []int{45, 50, 70} {
		var o ordered[int]
		o.init()
		var keys []uint64
		for range 20_000 {
			key := rng.Uint64N(4000)
			if rng.IntN(20) == 0 {
				key = ^uint64(0) - key%3
			}
			i, found := slices.BinarySearch(keys, key)
			switch {
			case rng.IntN(100) < grow && !found:
				o.insert(key, int(key))
				keys = slices.Insert(keys, i, key)
			case len(keys) > 0:
				i := rng.IntN(len(keys))
				at, ok := o.find(keys[i])
				if !ok || *o.val(at) != int(keys[i]) {
					t.Fatalf("key %d not found", keys[i])
				}
				o.remove(at)
				keys = slices.Delete(keys, i, i+1)
			}
			if err := compareOrdered(&o, keys, rng.Uint64N(4000)); err != "" {
				t.Fatal(err)
			}
		}
		if err := checkOrder(&o); err != nil {
			t.Fatal(err)
		}
		if limit := 2 + 4*len(keys)/blockSize; len(o.blocks) > limit {
			t.Errorf("%d blocks for %d keys", len(o.blocks), len(keys))
		}
	}
}

func compareOrdered(o *ordered[int], keys []uint64, key uint64) string {
	i, found := slices.BinarySearch(keys, key)
	if found {
		i++
	}
	if at, ok := o.floor(key); ok != (i > 0) || ok && o.key(at) != keys[i-1] {
		return "wrong floor"
	}
	if at, ok := o.after(key); ok != (i < len(keys)) || ok && o.key(at) != keys[i] {
		return "wrong after"
	}
	if key, ok := o.first(); ok != (len(keys) > 0) || ok && key != keys[0] {
		return "wrong first"
	}
	if o.size != len(keys) {
		return "wrong size"
	}
	return ""
}
