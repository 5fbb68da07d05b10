package command

import (
	"context"
	"errors"
	"math/bits"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/vfs"
)

// durations counts times by their size, each to within a thirty-second of it, in memory
// that does not grow with their number.
type durations struct {
	counts  [timesBuckets]int64
	n       int64
	longest int64 // in nanoseconds
}

// Times below 2*timesParts ns are counted each by itself, and of each power of two above
// timesParts parts.
const (
	timesParts   = 32
	timesBits    = 6 // of numbers below 2*timesParts
	timesBuckets = (64 - timesBits + 2) * timesParts
)

func timesBucket(ns int64) int {
	v := uint64(max(ns, 0))
	shift := max(bits.Len64(v)-timesBits, 0)
	return shift*timesParts + int(v>>shift)
}

// timesValue is the time in the middle of a bucket.
func timesValue(bucket int) int64 {
	shift := max(bucket/timesParts-1, 0)
	return int64(bucket-shift*timesParts)<<shift + int64(1)<<shift/2
}

func (d *durations) add(t time.Duration) {
	ns := t.Nanoseconds()
	d.counts[timesBucket(ns)]++
	d.n++
	d.longest = max(d.longest, ns)
}

func (d *durations) addAll(other *durations) {
	for i, n := range other.counts {
		d.counts[i] += n
	}
	d.n += other.n
	d.longest = max(d.longest, other.longest)
}

// quantile is the time in nanoseconds below which the share q of all are; 0 if there are none.
func (d *durations) quantile(q float64) int64 {
	left := int64(q*float64(d.n)) + 1
	for i, n := range d.counts {
		if left -= n; left <= 0 && n > 0 {
			return min(timesValue(i), d.longest)
		}
	}
	return d.longest
}

// timed is what was measured of one kind of operation.
type timed struct {
	durations
	took time.Duration // from the first to the last
}

// perSecond is the rate of n things in that time.
func (t *timed) perSecond(n int64) float64 {
	if t.took <= 0 {
		return 0
	}
	return float64(n) / t.took.Seconds()
}

// budget is how much is measured: until a moment, or so many operations.
type budget struct {
	ctx   context.Context
	until time.Time
	left  *atomic.Int64 // nil: time counts
	rest  time.Duration // between two operations
}

// budget is a share of what a workload measures, or the count of --count.
func (s *benchSuite) budget(share float64) *budget {
	b := &budget{ctx: s.ctx, until: time.Now().Add(time.Duration(share * float64(s.flags.time)))}
	if s.flags.count > 0 {
		b.left = new(atomic.Int64)
		b.left.Store(s.flags.count)
	}
	return b
}

// next tells whether somebody who has done so many operations is to do another one. One
// at least is done by each if time counts.
func (b *budget) next(done int64) bool {
	switch {
	case b.ctx.Err() != nil:
		return false
	case b.left != nil:
		return b.left.Add(-1) >= 0
	}
	return done == 0 || time.Now().Before(b.until)
}

// phase is a part of a workload in which some workers do one thing, all at the same time.
type phase struct {
	what    string  // for the progress
	share   float64 // of the workload's time
	workers int
	rest    time.Duration // of a worker between two operations
}

// measure has the workers do op, which is given the number of the worker.
func (s *benchSuite) measure(p phase, op func(worker int) error) (*timed, error) {
	defer s.progress(p.what, 0, nil)()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	b := s.budget(p.share)
	b.ctx, b.rest = ctx, p.rest
	each, errs := make([]durations, p.workers), make([]error, p.workers)
	var ready, done sync.WaitGroup
	ready.Add(1)
	for w := range p.workers {
		done.Go(func() {
			ready.Wait()
			if errs[w] = b.repeat(&each[w], func() error { return op(w) }); errs[w] != nil {
				cancel() // the others need not go on
			}
		})
	}
	start := time.Now()
	ready.Done()
	done.Wait()
	t := &timed{took: time.Since(start)}
	for w := range each {
		t.addAll(&each[w])
	}
	return t, errors.Join(append(errs, s.ctx.Err())...)
}

// beside has a worker do op, once at least, until end is called.
func (s *benchSuite) beside(op func() error) (end func() (*timed, error)) {
	t, failed := &timed{}, make(chan error, 1)
	ctx, cancel := context.WithCancel(s.ctx)
	start := time.Now()
	go func() {
		for {
			began := time.Now()
			if err := op(); err != nil {
				failed <- err
				return
			}
			t.add(time.Since(began))
			if ctx.Err() != nil {
				failed <- nil
				return
			}
		}
	}()
	return func() (*timed, error) {
		cancel()
		err := <-failed
		t.took = time.Since(start)
		return t, err
	}
}

// repeat does op as long as the budget lasts.
func (b *budget) repeat(d *durations, op func() error) error {
	for b.next(d.n) {
		start := time.Now()
		if err := op(); err != nil {
			return err
		}
		d.add(time.Since(start))
		if b.rest > 0 {
			time.Sleep(b.rest)
		}
	}
	return nil
}

// clocked is an operation that tells how long that took of it which is measured.
type clocked func() (time.Duration, error)

// clock measures all of op.
func clock(op func() error) clocked {
	return func() (time.Duration, error) {
		start := time.Now()
		err := op()
		return time.Since(start), err
	}
}

// turns does several operations in turns, each as often as the others, so that what else
// goes on on the machine meets all of them alike.
func (s *benchSuite) turns(what string, share float64, ops ...clocked) ([]*timed, error) {
	defer s.progress(what, 0, nil)()
	all := make([]*timed, len(ops))
	for i := range all {
		all[i] = &timed{}
	}
	b := s.budget(share)
	for round := 0; b.next(int64(round)); round++ {
		for i := range ops {
			i = (i + round) % len(ops) // so that none always comes first
			took, err := ops[i]()
			if err != nil {
				return nil, err
			}
			all[i].add(took)
			all[i].took += took
		}
	}
	return all, s.ctx.Err()
}

// bareFlushes is how often a flush is measured without a database.
const bareFlushes = 64

// bareFlush measures what it takes to write a page and flush it.
func (s *benchSuite) bareFlush() (d *durations, err error) {
	s.now = filepath.Join(s.r.Dir, "flush")
	f, err := vfs.OpenOS(s.now, os.O_RDWR|os.O_CREATE, 0o600, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(s.now)) }()
	d = &durations{}
	buf := make([]byte, os.Getpagesize())
	for range bareFlushes {
		if err := s.ctx.Err(); err != nil {
			return nil, err
		}
		start := time.Now()
		if _, err := f.WriteAt(buf, 0); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		d.add(time.Since(start))
	}
	return d, nil
}
