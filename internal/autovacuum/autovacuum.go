// Package autovacuum decides when a database is vacuumed by itself, and has it done. It
// knows nothing of the database but what Env gives it.
package autovacuum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdfast/internal/pager"
)

// Options say when to vacuum.
type Options struct {
	MinShare float64 // of the file that must be free, at least
	MinBytes int64   // that must be free, at least
	Interval time.Duration
	MaxBusy  float64 // share of the time between two looks for which writers may have been busy
}

// Env is what an Auto needs of its database.
type Env struct {
	PageSize int
	Usage    func() (pager.Usage, error)
	Busy     func() time.Duration // for which writers have waited or worked, in all
	Vacuum   func(ctx context.Context) (Done, error)
	Damaged  func(err error) bool // err reports damage
	Warn     func(text string)    // writes to the log for whom vacuum waits
	Failed   func(err error)      // writes to the log that a vacuum failed
}

// Done is what a vacuum did. It is zero if another one runs.
type Done struct {
	SizeBefore, SizeAfter, FreeBefore int64  // bytes
	Reader                            uint64 // transaction of the oldest reader, which kept it from more; 0: none
	Result                            any    // for Stats.Last
}

// Stats say what an Auto has done.
type Stats struct {
	Running bool
	Runs    int    // that have ended
	Freed   int64  // bytes by which they made the file shorter
	Waits   string // WaitsForReader, WaitsForWriters or ""
	Last    any    // Done.Result of the last run; nil: there was none
}

// Values of Stats.Waits.
const (
	WaitsForReader  = "reader"
	WaitsForWriters = "writers"
)

// Auto vacuums a database by itself. It is armed by commits and looks when its timer
// runs out, so that there is no goroutine, nor a timer, while nothing happens. The methods
// of a nil Auto do nothing.
type Auto struct {
	env  Env
	opts Options

	mu      sync.Mutex
	timer   *time.Timer
	armed   bool // it looks again
	looking bool // it finds out what is free
	closed  bool
	cancel  context.CancelFunc // of the run in progress; nil: none is
	ended   *sync.Cond
	stats   Stats
	looked  time.Time
	busy    time.Duration // Env.Busy at the last look, or after the run since
	settled int64         // bytes that were free at the last run and that it could not give back
	beside  uint64        // transaction of the reader that kept that run from more; 0: none
	named   uint64        // that of the reader that was named in the log
	warning int           // calls of Env.Warn in progress

	// Runs that give nothing back are further and further apart: something that comes and goes keeps them from it.
	vain  int       // such runs, one after the other
	rests time.Time // until then, unless much more is free
	free  int64     // at the last run
}

// mostVain bounds how long it rests: 64 intervals.
const mostVain = 6

// New makes an Auto that is not armed.
func New(opts Options, env Env) *Auto {
	a := &Auto{env: env, opts: opts, looked: time.Now()}
	a.ended = sync.NewCond(&a.mu)
	return a
}

// Arm sees to it that the Auto looks after a while.
func (a *Auto) Arm() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.arm()
}

// arm is Arm for a caller that holds mu.
func (a *Auto) arm() {
	if a.armed || a.closed {
		return
	}
	a.armed = true
	if a.looking || a.cancel != nil {
		return // when that has ended
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(a.opts.Interval, a.Look)
	} else {
		a.timer.Reset(a.opts.Interval)
	}
}

// Armed tells whether the Auto is going to look.
func (a *Auto) Armed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.armed
}

// Stop ends what is in progress and waits for that.
func (a *Auto) Stop() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.timer != nil {
		a.timer.Stop()
	}
	if a.cancel != nil {
		a.cancel()
	}
	for a.cancel != nil || a.warning > 0 {
		a.ended.Wait()
	}
}

// Stats gives the statistics.
func (a *Auto) Stats() Stats {
	if a == nil {
		return Stats{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stats
	s.Running = a.cancel != nil
	return s
}

// Look is called by the timer. It asks nothing of the database, and tells the log nothing,
// with mu held: a caller that wants statistics takes it.
func (a *Auto) Look() {
	a.mu.Lock()
	a.armed, a.looking = false, true // what is committed from here on may not be among what Usage sees
	a.mu.Unlock()
	u, err := a.env.Usage()
	now, total := time.Now(), a.env.Busy()
	a.mu.Lock()
	a.looking = false
	// Several who wait at once do not make it more than all of the time: MaxBusy 1 is never exceeded.
	busy := min(1, float64(total-a.busy)/float64(max(now.Sub(a.looked), 1)))
	a.looked, a.busy = now, total
	if a.closed {
		a.mu.Unlock()
		return
	}
	var due bool
	var named string
	if err == nil {
		due, named = a.due(u, busy)
	}
	if !due {
		if a.armed {
			a.armed = false
			a.arm()
		}
		if named != "" {
			a.warn(named)
		}
		a.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.mu.Unlock()
	done, err := a.env.Vacuum(ctx)
	if err != nil && ctx.Err() == nil {
		a.env.Failed(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	cancel()
	a.cancel = nil
	a.ended.Broadcast()
	a.looked, a.busy = time.Now(), a.env.Busy() // the run itself has waited and worked
	a.note(done, err)
	// Something was committed meanwhile, or it is to go on after a reader.
	again := a.armed || a.beside != 0
	a.armed = false
	if again {
		a.arm()
	}
}

// warn writes to the log while Stop waits for it. The caller holds mu, which is given up meanwhile.
func (a *Auto) warn(text string) {
	a.warning++
	a.mu.Unlock()
	a.env.Warn(text)
	a.mu.Lock()
	a.warning--
	a.ended.Broadcast()
}

// note remembers what came of a run. The caller holds mu.
func (a *Auto) note(done Done, err error) {
	if done.SizeBefore > 0 {
		a.stats.Last = done.Result
		a.stats.Runs++
	}
	a.beside = done.Reader
	if errors.Is(err, pager.ErrStopped) { // nothing is written any more
		a.closed = true
	}
	freed := max(done.SizeBefore-done.SizeAfter, 0)
	if done.SizeAfter > 0 {
		a.stats.Freed += freed
	}
	if err == nil && done.SizeAfter > 0 || a.env.Damaged(err) {
		a.settled = max(done.FreeBefore-freed, 0) // not what is free now: others go on freeing
	}
	a.rest(err == nil && freed > 0)
}

// rest sets how long no run begins after one: not at all if it gave something back, or is the first that did not. The
// caller holds mu.
func (a *Auto) rest(fruitful bool) {
	if fruitful {
		a.vain, a.rests = 0, time.Time{}
		return
	}
	a.vain = min(a.vain+1, mostVain)
	if a.vain > 1 {
		rest := a.opts.Interval
		for range a.vain {
			if rest < 24*time.Hour {
				rest *= 2
			}
		}
		a.rests = time.Now().Add(rest)
	}
}

// due tells whether to vacuum now, or which reader to name in the log. If it is to look
// again without a commit in between it arms itself. The caller holds mu.
func (a *Auto) due(u pager.Usage, busy float64) (due bool, named string) {
	page := int64(a.env.PageSize)
	free, pending := int64(u.Free)*page, int64(u.Pending)*page
	reader := uint64(0)
	if !u.Oldest.Since.IsZero() {
		reader = uint64(u.Oldest.Tx)
	}
	if reader == 0 { // then what is pending waits for a flush at most
		free, pending = free+pending, 0
	}
	if a.beside != 0 && a.beside != reader { // it has ended, beside which nothing more was to be had
		a.beside, a.settled = 0, 0
	}
	a.stats.Waits = ""
	enough := func(bytes int64) bool {
		return bytes >= a.opts.MinBytes && float64(bytes) >= a.opts.MinShare*float64(u.FileSize)
	}
	more := free >= a.settled+a.opts.MinBytes || a.settled == 0
	switch {
	case enough(free) && more && free < a.free+a.opts.MinBytes && time.Now().Before(a.rests):
		// It looks again.
	case enough(free) && more && busy > a.opts.MaxBusy:
		a.stats.Waits = WaitsForWriters
	case enough(free) && more:
		a.free = free
		return true, ""
	case reader != 0 && (enough(free+pending) && !enough(free) || a.beside != 0 && enough(free)):
		a.stats.Waits = WaitsForReader
		if a.named != reader {
			a.named = reader
			age := time.Since(u.Oldest.Since).Round(time.Millisecond)
			named = fmt.Sprintf("%d bytes cannot be given back before the end of a transaction that has been open for more than %v and reads the state of transaction %d, %d before the newest",
				free+pending, age, reader, u.Oldest.Age)
		}
	default:
		a.settled = min(a.settled, free)
		return false, ""
	}
	a.arm()
	return false, named
}
