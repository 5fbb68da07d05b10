package space

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"

	"holdfast/internal/page"
)

const manyPages = 1_200_000

// scattered is a Space of n pages of which every second one is free.
func scattered(t testing.TB, n uint64) *Space {
	l := Load(page.ID(n))
	for id := uint64(2); id < n; id += 2 {
		if err := l.Put(ext(id, 1)); err != nil {
			t.Fatal(err)
		}
	}
	return l.Space()
}

// bytesOf adds up everything that a Space refers to.
func bytesOf(s *Space) uint64 {
	size := func(v any) uint64 { return uint64(reflect.TypeOf(v).Size()) }
	var tree func(n *node) uint64
	tree = func(n *node) uint64 {
		sum := size(*n)
		for i := range fanout {
			if n.leaf[i] != nil {
				sum += size(*n.leaf[i])
			}
			if n.child[i] != nil {
				sum += tree(n.child[i])
			}
		}
		return sum
	}
	extents := func(x *extentSet) uint64 { return bytesOfMap(&x.lengths) }
	sum := size(*s) + tree(s.free.root) + extents(&s.pending)
	sum += uint64(len(s.free.pool.leaves))*size(leaf{}) + uint64(len(s.free.pool.nodes))*size(node{})
	sum += bytesOfMap(&s.pins) + bytesOfMap(&s.births.entries)
	for _, x := range s.idle {
		sum += size(*x) + extents(&x.own) + extents(&x.freed)
	}
	return sum + uint64(s.spare.n)*size(held{})
}

func bytesOfMap[V any](o *ordered[V]) (sum uint64) {
	var v V
	for _, b := range o.blocks {
		sum += uint64(reflect.TypeOf(*b).Size()) + 8*uint64(cap(b.keys)) + uint64(reflect.TypeOf(v).Size())*uint64(cap(b.vals))
	}
	return sum + 8*uint64(cap(o.blocks))
}

func TestMemory(t *testing.T) {
	const limit = 200_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC() // finishes what the first left
	runtime.ReadMemStats(&before)
	s := scattered(t, manyPages)
	runtime.GC()
	runtime.ReadMemStats(&after)
	counted, heap := bytesOf(s), after.HeapAlloc-before.HeapAlloc
	t.Logf("%d pages, every second one free: %d bytes, %d bytes of heap", manyPages, counted, heap)
	if counted > limit || heap > limit {
		t.Errorf("want at most %d bytes", limit)
	}
	if got := bytesOf(New(1 << 60)); got > 10_000 {
		t.Errorf("an absurd high-water mark costs %d bytes", got)
	}
}

// churn is the work of a small commit: three pages are allocated, three older
// ones freed, the state before is let go.
type churn struct {
	s    *Space
	tx   page.TxID
	live []page.ID
	rng  *rand.Rand
}

func newChurn(t testing.TB, s *Space) *churn {
	c := &churn{s: s, rng: rand.New(rand.NewPCG(5, 6))}
	s.Pin(0)
	for id := page.ID(3); id < s.HighWater(); id += 2 {
		c.live = append(c.live, id)
	}
	for range 2000 {
		c.commit(t)
	}
	return c
}

func (c *churn) commit(t testing.TB) {
	c.tx++
	x := c.s.Begin(c.tx)
	for range 3 {
		id, err := x.Allocate(1)
		if err != nil {
			t.Fatal(err)
		}
		i := c.rng.IntN(len(c.live))
		if err := x.Free(page.Extent{Start: c.live[i], N: 1}); err != nil {
			t.Fatal(err)
		}
		c.live[i] = id
	}
	x.Commit()
	_, _ = x.Allocated(), x.Freed()
	x.Recycle()
	c.s.Pin(c.tx)
	c.s.Unpin(c.tx - 1)
}

func TestNoAllocation(t *testing.T) {
	for _, readers := range []bool{false, true} {
		s := scattered(t, 100_000)
		if readers {
			s.Pin(0) // a long reader
		}
		c := newChurn(t, s)
		if n := testing.AllocsPerRun(2000, func() { c.commit(t) }); n != 0 && !readers {
			t.Errorf("%v allocations for a commit", n)
		} else {
			t.Logf("long reader: %t: %v allocations for a commit", readers, n)
		}
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, n := range []uint64{10_000, 100_000, manyPages, 2 * manyPages} {
		b.Run(fmt.Sprintf("free=%d", n/2), func(b *testing.B) {
			c := newChurn(b, scattered(b, n))
			b.ReportAllocs()
			for b.Loop() {
				c.commit(b)
			}
		})
	}
}

// One page is allocated and freed again, with 1.2 million single pages free.
func BenchmarkAllocateFree(b *testing.B) {
	x := scattered(b, 2*manyPages).Begin(1)
	b.ReportAllocs()
	for b.Loop() {
		id, _ := x.Allocate(1)
		_ = x.Free(page.Extent{Start: id, N: 1})
	}
}

// A run is looked for that only the end of the file has room for.
func BenchmarkAllocateFreeRun(b *testing.B) {
	s := scattered(b, 2*manyPages)
	x := s.Begin(1)
	id, _ := x.Allocate(100)
	_ = x.Free(page.Extent{Start: id, N: 100})
	b.ReportAllocs()
	for b.Loop() {
		id, _ := x.Allocate(80)
		_ = x.Free(page.Extent{Start: id, N: 80})
	}
}

func BenchmarkCommitManyPins(b *testing.B) {
	for _, pins := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("pins=%d", pins), func(b *testing.B) {
			c := newChurn(b, scattered(b, 100_000))
			for range pins {
				c.s.Pin(c.tx)
				c.commit(b)
			}
			b.ReportAllocs()
			for b.Loop() {
				c.commit(b)
			}
		})
	}
}

// Of 10,000 readers the newest leaves, one after the other, with 30,000 pages
// pending: the worst order for handing witnesses down.
func BenchmarkUnpinNewest(b *testing.B) {
	const readers = 10_000
	var c *churn
	left := 0
	for b.Loop() {
		if left == 0 {
			b.StopTimer()
			c = newChurn(b, scattered(b, 100_000))
			for range readers {
				c.s.Pin(c.tx)
				c.commit(b)
			}
			left = readers
			b.StartTimer()
		}
		c.s.Unpin(c.tx - page.TxID(readers-left) - 1)
		left--
	}
}

// Whether there are more than some hundred runs of free pages was found out by counting all of
// them, under the lock that commits need: 3.9 ms in a file of 1 TiB.
func TestFewUnusedRunsIsShort(t *testing.T) {
	s := scattered(t, manyPages)
	all := s.UnusedRuns()
	for _, most := range []uint64{0, 1, 100, 5000, all - 1, all, all + 1} {
		n, visited := s.unusedRuns(most)
		if few := s.FewUnusedRuns(most); few != (all <= most) {
			t.Errorf("at most %d of %d runs: %t", most, all, few)
		}
		if n > most+leafPages || uint64(visited) > most/(leafPages/2)+1 {
			t.Errorf("to find more than %d runs %d leaves were visited, and %d runs counted", most, visited, n)
		}
	}
	none := New(manyPages)
	if !none.FewUnusedRuns(0) {
		t.Error("where nothing is free there is a run")
	}
}
