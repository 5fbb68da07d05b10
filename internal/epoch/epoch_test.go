package epoch

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// version is a value that knows whether it was retired.
type version struct {
	number  int
	retired *atomic.Int32
}

func newVersion(n int) version { return version{number: n, retired: new(atomic.Int32)} }

// newCounted is an Epoch of versions that counts what it retires.
func newCounted(t testing.TB) (*Epoch[version], *int) {
	retired := new(int)
	e := New(newVersion(0), func(v *version) {
		*retired++
		if n := v.retired.Add(1); n != 1 {
			t.Errorf("version %d retired %d times", v.number, n)
		}
	})
	return e, retired
}

// oldest is the value of the oldest state that is not retired, nil if all are.
func oldest(e *Epoch[version]) *version {
	for v := range e.All() {
		return v
	}
	return nil
}

func mustAcquire(t testing.TB, e *Epoch[version]) Guard[version] {
	t.Helper()
	g, ok := e.Acquire()
	if !ok {
		t.Fatal("acquire failed before close")
	}
	return g
}

func TestHeldStateIsKept(t *testing.T) {
	e, retired := newCounted(t)
	a := mustAcquire(t, e)
	b := mustAcquire(t, e)
	e.Publish(newVersion(1))
	c := mustAcquire(t, e)
	e.Sweep()
	if *retired != 0 || oldest(e).number != 0 || e.Held() != 3 || e.Acquired() != 3 {
		t.Fatalf("retired %d, oldest %d, held %d, acquired %d", *retired, oldest(e).number, e.Held(), e.Acquired())
	}
	a.Release()
	e.Sweep()
	if *retired != 0 {
		t.Fatal("retired while one guard is left")
	}
	b.Release()
	e.Sweep()
	e.Sweep()
	if *retired != 1 || oldest(e) != c.Value() || c.Value().number != 1 || e.Current() != c.Value() {
		t.Fatalf("retired %d, oldest %d", *retired, oldest(e).number)
	}
	c.Release()
	e.Sweep()
	if *retired != 1 {
		t.Fatal("the current state was retired")
	}
	if e.Held() != 0 || e.Acquired() != 3 {
		t.Fatalf("held %d, acquired %d", e.Held(), e.Acquired())
	}
}

// A state in the middle is retired while older ones are held.
func TestRetireOutOfOrder(t *testing.T) {
	e, retired := newCounted(t)
	var guards []Guard[version]
	for i := range 200 {
		guards = append(guards, mustAcquire(t, e))
		e.Publish(newVersion(i + 1))
		e.Sweep()
	}
	for n, i := range rand.Perm(len(guards)) {
		guards[i].Release()
		for range 2 + len(guards)/sweepStates {
			e.Sweep()
		}
		if *retired != n+1 || guards[i].Value().retired.Load() != 1 {
			t.Fatalf("released %d, retired %d", n+1, *retired)
		}
	}
	if oldest(e) != e.Current() {
		t.Fatal("states left over")
	}
}

// One Sweep does no more than it may, however many states there are.
func TestSweepIsBounded(t *testing.T) {
	e, retired := newCounted(t)
	const states = 10 * sweepStates
	for i := range states {
		e.Publish(newVersion(i + 1))
	}
	for n := 1; n <= 10; n++ {
		e.Sweep()
		if *retired != n*sweepStates {
			t.Fatalf("sweep %d: %d states retired", n, *retired)
		}
	}
}

func TestCloseWaitsForGuards(t *testing.T) {
	e, retired := newCounted(t)
	old := mustAcquire(t, e)
	e.Publish(newVersion(1))
	recent := mustAcquire(t, e)
	wait := e.Close()
	if _, ok := e.Acquire(); ok {
		t.Fatal("acquired after close")
	}
	if e.Current() != nil {
		t.Fatal("a current state after close")
	}
	done := make(chan struct{})
	go func() {
		wait()
		close(done)
	}()
	recent.Release()
	select {
	case <-done:
		t.Fatal("wait returned while a guard was left")
	case <-time.After(20 * time.Millisecond):
	}
	if old.Value().retired.Load() != 0 {
		t.Fatal("retired while held")
	}
	old.Release()
	<-done
	e.Sweep()
	if *retired != 2 || oldest(e) != nil || e.Acquired() != 2 {
		t.Fatalf("retired %d, acquired %d", *retired, e.Acquired())
	}
}

func TestCloseUnused(t *testing.T) {
	e, retired := newCounted(t)
	e.Publish(newVersion(1))
	wait := e.Close()
	e.Sweep()
	wait()
	if *retired != 2 {
		t.Fatalf("retired %d", *retired)
	}
}

func TestReleaseTwicePanics(t *testing.T) {
	e, _ := newCounted(t)
	g := mustAcquire(t, e)
	g.Release()
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	g.Release()
}

// The acquisitions of a shard are moved away before they overflow.
func TestAcquiredDoesNotOverflow(t *testing.T) {
	e, _ := newCounted(t)
	s := e.current.Load()
	var want uint64
	for i := range s.shards {
		s.shards[i].count.Store(almostFull - 5<<32)
		want += almostFull>>32 - 5
	}
	g := mustAcquire(t, e)
	for range 1000 {
		mustAcquire(t, e).Release()
	}
	want += 1001
	if e.Acquired() != want || e.Held() != 1 || e.past.Load() != quarter*uint64(len(s.shards)) {
		t.Fatalf("acquired %d, want %d; held %d; moved %d", e.Acquired(), want, e.Held(), e.past.Load())
	}
	g.Release()
	e.Publish(newVersion(1))
	e.Sweep()
	if e.Acquired() != want || oldest(e).number != 1 {
		t.Fatalf("acquired %d, want %d", e.Acquired(), want)
	}
}

func TestNoAllocation(t *testing.T) {
	e, _ := newCounted(t)
	if n := testing.AllocsPerRun(1000, func() {
		g, _ := e.Acquire()
		g.Release()
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
	g := mustAcquire(t, e)
	defer g.Release()
	e.Publish(newVersion(1))
	if n := testing.AllocsPerRun(1000, e.Sweep); n != 0 {
		t.Fatalf("sweep: %v allocations", n)
	}
}

// stress runs readers against a publishing writer, and returns how often a
// holder saw a retired value and how many states were not retired at the end
// although everything was released.
func stress(e *Epoch[version], publish int, acquire func() (Guard[version], bool), release func(Guard[version])) (seen, left int) {
	var wg sync.WaitGroup
	var stop atomic.Bool
	var bad atomic.Int64
	for range 4 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !stop.Load() {
				g, ok := acquire()
				if !ok {
					return
				}
				if g.Value().retired.Load() != 0 {
					bad.Add(1)
				}
				if rand.Uint32()%64 == 0 {
					runtime.Gosched()
				}
				if g.Value().retired.Load() != 0 {
					bad.Add(1)
				}
				release(g)
			}
		})
	}
	for i := range publish {
		e.Publish(newVersion(i + 1))
		e.Sweep()
		if i%16 == 0 {
			runtime.Gosched()
		}
	}
	stop.Store(true)
	wg.Wait()
	for range 2 + publish/sweepStates {
		e.Sweep()
	}
	for s := e.oldest; s != e.newest; s = s.newer {
		left++
	}
	return int(bad.Load()), left
}

func TestStress(t *testing.T) {
	publish := 200_000
	if testing.Short() {
		publish = 20_000
	}
	e, retired := newCounted(t)
	seen, left := stress(e, publish, e.Acquire, Guard[version].Release)
	if seen != 0 || left != 0 || *retired != publish || e.Held() != 0 {
		t.Fatalf("%d holders saw a retired value, %d states left, %d of %d retired", seen, left, *retired, publish)
	}
	e.Close()()
	if *retired != publish+1 {
		t.Fatalf("%d retired", *retired)
	}
}

// wrongUndo is Acquire with a fault: it takes its count back on another shard.
func wrongUndo(e *Epoch[version], undone *atomic.Int64) (Guard[version], bool) {
	for {
		s := e.current.Load()
		if s == nil {
			return Guard[version]{}, false
		}
		i := rand.Uint32() & e.mask
		s.shards[i].count.Add(oneAcquired)
		if e.current.Load() == s {
			return Guard[version]{state: s, shard: i}, true
		}
		undone.Add(1)
		neg := uint64(oneAcquired)
		s.shards[(i+1)&e.mask].count.Add(-neg)
	}
}

// The stress test finds an Acquire that undoes on another shard: a holder sees a
// retired value, or a release makes a count negative, or a state can never be
// retired. (Two wrong undos can cancel out, so one may not be enough.)
func TestStressFindsWrongUndo(t *testing.T) {
	if runtime.GOMAXPROCS(0) == 1 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	var undone, panics atomic.Int64
	for range 1000 {
		e, _ := newCounted(t)
		seen, left := stress(e, 2000,
			func() (Guard[version], bool) { return wrongUndo(e, &undone) },
			func(g Guard[version]) {
				defer func() {
					if recover() != nil {
						panics.Add(1)
					}
				}()
				g.Release()
			})
		if seen > 0 || left > 0 || panics.Load() > 0 {
			t.Logf("undone %d times; seen %d, left %d, negative %d", undone.Load(), seen, left, panics.Load())
			return
		}
	}
	t.Fatalf("not found, though undone %d times", undone.Load())
}

// Close races with readers: wait returns exactly when all are gone.
func TestStressClose(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 500
	}
	for range rounds {
		e, retired := newCounted(t)
		var wg sync.WaitGroup
		var holders, got atomic.Int64
		for range 4 {
			wg.Go(func() {
				for {
					g, ok := e.Acquire()
					if !ok {
						return
					}
					holders.Add(1)
					got.Add(1)
					if rand.Uint32()%4 == 0 {
						runtime.Gosched()
					}
					if g.Value().retired.Load() != 0 {
						t.Error("a holder saw a retired value")
					}
					holders.Add(-1)
					g.Release()
				}
			})
		}
		published := rand.IntN(4)
		for i := range published {
			e.Publish(newVersion(i + 1))
			runtime.Gosched()
		}
		e.Close()()
		if n := holders.Load(); n != 0 {
			t.Fatalf("wait returned with %d holders", n)
		}
		if *retired != published+1 {
			t.Fatalf("%d of %d states retired", *retired, published+1)
		}
		wg.Wait()
		if e.Acquired() != uint64(got.Load()) {
			t.Fatalf("acquired %d, counted %d", e.Acquired(), got.Load())
		}
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	e, _ := newCounted(b)
	b.ReportAllocs()
	for b.Loop() {
		g, _ := e.Acquire()
		g.Release()
	}
}

func BenchmarkAcquireReleaseParallel(b *testing.B) {
	e, _ := newCounted(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			g, _ := e.Acquire()
			g.Release()
		}
	})
}

// A commit with 10,000 states held.
func BenchmarkPublishSweepManyHeld(b *testing.B) {
	e, _ := newCounted(b)
	for i := range 10_000 {
		mustAcquire(b, e)
		e.Publish(newVersion(i))
	}
	v := newVersion(0)
	b.ReportAllocs()
	for b.Loop() {
		v.retired = new(atomic.Int32)
		e.Publish(v)
		e.Sweep()
	}
}

// OldestHeld names the oldest state that somebody holds, never the current one; All gives
// those that are not retired; SweepAll leaves only what is held.
func TestOldestHeld(t *testing.T) {
	e, retired := newCounted(t)
	now := mustAcquire(t, e)
	if old, _ := e.OldestHeld(); old != nil {
		t.Fatalf("version %d is held and current", old.number)
	}
	var guards []Guard[version]
	var first time.Time // behind version 1
	begin := time.Now()
	for n := 1; n <= 200; n++ {
		e.Publish(newVersion(n))
		if n == 1 {
			first = time.Now()
		}
		if n%50 == 0 {
			guards = append(guards, mustAcquire(t, e))
		}
	}
	e.Sweep() // the states in between go, and the time stays
	old, replaced := e.OldestHeld()
	if old == nil || old.number != 0 || replaced.Before(begin) || replaced.After(first) {
		t.Fatalf("version 0 is held, and was replaced between %v and %v, not at %v", begin, first, replaced)
	}
	now.Release()
	if old, replaced := e.OldestHeld(); old == nil || old.number != 50 || replaced.Before(first) {
		t.Fatal("version 50 is held, and was replaced later")
	}
	e.SweepAll()
	var left []int
	for v := range e.All() {
		left = append(left, v.number)
	}
	if !slices.Equal(left, []int{50, 100, 150, 200}) || *retired != 197 {
		t.Fatalf("left %v, %d retired", left, *retired)
	}
	for _, g := range guards {
		g.Release()
	}
	if old, _ := e.OldestHeld(); old != nil {
		t.Fatal("nobody holds anything")
	}
}
