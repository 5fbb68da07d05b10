package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdfast/internal/pager"
	"holdfast/internal/vacuum"
)

// AutoVacuum has the database vacuumed (see DB.Vacuum) whenever much of its file is free
// and its writers have time. Fields that are zero have defaults.
type AutoVacuum struct {
	// MinShare and MinBytes are how much of the file must be free: at least that
	// share of it, default 0.25, and so many bytes, default 16 MiB. What readers
	// still see does not count.
	MinShare float64
	MinBytes int64

	// Interval is how often it looks, default one second. It looks after commits and after
	// Open, and not at a database in which nothing happens.
	Interval time.Duration

	// MaxBusy is how busy writers may be when it begins: the share of the time between
	// two looks in which a writing transaction was open, default 0.5.
	MaxBusy float64

	// MaxShare is the share of the time in which it keeps writers waiting, at most,
	// default 0.1.
	MaxShare float64
}

// withDefaults fills what is zero.
func (a AutoVacuum) withDefaults() AutoVacuum {
	if a.MinShare == 0 {
		a.MinShare = 0.25
	}
	if a.MinBytes == 0 {
		a.MinBytes = 16 << 20
	}
	if a.Interval == 0 {
		a.Interval = time.Second
	}
	if a.MaxBusy == 0 {
		a.MaxBusy = 0.5
	}
	if a.MaxShare == 0 {
		a.MaxShare = 0.1
	}
	return a
}

func (a *AutoVacuum) validate() error {
	if a.MinShare < 0 || a.MinShare > 1 || a.MaxBusy < 0 || a.MaxBusy > 1 || a.MaxShare < 0 || a.MaxShare > 1 {
		return errors.New("a share in AutoVacuum is not between 0 and 1")
	}
	if a.MinBytes < 0 || a.Interval < 0 {
		return errors.New("AutoVacuum has a negative threshold or interval")
	}
	return nil
}

// String gives the fields, for a log.
func (a *AutoVacuum) String() string {
	type plain AutoVacuum // without this method
	return fmt.Sprintf("%+v", plain(a.withDefaults()))
}

// VacuumStats say what AutoVacuum does. Calls of DB.Vacuum are not counted.
type VacuumStats struct {
	Running bool
	Runs    int   // that have ended, also with an error, which is in the log
	Freed   int64 // bytes by which they made the file shorter
	// Waits is what keeps it from beginning although much is free: WaitsForReader or
	// WaitsForWriters; "" otherwise.
	Waits string
	Last  VacuumResult // of the last run
}

// Values of VacuumStats.Waits.
const (
	WaitsForReader  = "reader"  // one that reads an old state, see Stats.OldestReader
	WaitsForWriters = "writers" // which are busy
)

// gainOfAuto is the share of pages that joining neighbours must save, and fillOfAuto how
// full pages become by that: full ones are split again by those who write on.
const (
	gainOfAuto = 0.25
	fillOfAuto = 0.8
)

// auto vacuums a database by itself. Commits arm its timer, and it looks when that
// runs out, so that there is no goroutine, nor a timer, while nothing happens.
type auto struct {
	db   *DB
	opts AutoVacuum

	mu      sync.Mutex
	timer   *time.Timer
	wound   bool
	closed  bool
	cancel  context.CancelFunc // of the run under way; nil: none is
	ended   *sync.Cond
	stats   VacuumStats
	looked  time.Time
	writers time.Duration // for which the writer lock had been held at the last look
	settled int64         // bytes that were free at the last run and that it could not give back
	reader  uint64        // transaction of the oldest reader during that run; 0: none
	named   uint64        // that of the reader that was named in the log
}

// newAuto makes the auto of db, not armed.
func newAuto(db *DB, opts AutoVacuum) *auto {
	a := &auto{db: db, opts: opts.withDefaults(), looked: time.Now()}
	a.ended = sync.NewCond(&a.mu)
	return a
}

// arm sees to it that it looks after a while. It does nothing on a nil auto.
func (a *auto) arm() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armLocked()
}

func (a *auto) armLocked() {
	if a.wound || a.closed {
		return
	}
	a.wound = true
	if a.cancel != nil {
		return // when the run has ended
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(a.opts.Interval, a.look)
	} else {
		a.timer.Reset(a.opts.Interval)
	}
}

// stop ends what is under way and waits for that. It does nothing on a nil auto.
func (a *auto) stop() {
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
	for a.cancel != nil {
		a.ended.Wait()
	}
}

// read gives the statistics.
func (a *auto) read() VacuumStats {
	if a == nil {
		return VacuumStats{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stats
	s.Running = a.cancel != nil
	return s
}

// look is called by the timer. Nothing is asked of the pager, and nothing said to the
// logger, with mu held: callers that want statistics take it.
func (a *auto) look() {
	u, err := a.db.pager.Usage()
	now, writers := time.Now(), time.Duration(a.db.pager.Counts().WriterTime.Load())
	a.mu.Lock()
	a.wound = false
	busy := float64(writers-a.writers) / float64(max(now.Sub(a.looked), 1))
	a.looked, a.writers = now, writers
	if a.closed || err != nil {
		a.mu.Unlock()
		return
	}
	due, named := a.due(u, busy)
	if !due {
		a.mu.Unlock()
		if named != "" {
			a.db.logger.Warningf("%s: vacuum waits: %s", a.db.path, named)
		}
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.mu.Unlock()
	r, err := a.run(ctx)
	if err != nil && ctx.Err() == nil {
		a.db.logger.Errorf("Vacuuming %s failed: %v", a.db.path, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	cancel()
	a.cancel = nil
	a.ended.Broadcast()
	a.note(r, err)
	// Something was committed meanwhile, or it is to go on after a reader ends.
	again := a.wound || a.reader != 0
	a.wound = false
	if again {
		a.armLocked()
	}
}

// note remembers what came of a run. The caller holds mu.
func (a *auto) note(r VacuumResult, err error) {
	if r.SizeBefore > 0 {
		a.stats.Last = r
		a.stats.Runs++
	}
	a.reader = r.Reader.Tx
	freed := max(r.SizeBefore-r.SizeAfter, 0)
	if r.SizeAfter > 0 {
		a.stats.Freed += freed
	}
	if err == nil && r.SizeAfter > 0 || isDamage(err) {
		a.settled = max(r.FreeBefore-freed, 0) // not FreeAfter: others go on freeing
	}
}

// due tells whether to vacuum now, or whom to name in the log. If it is to look again
// without a commit in between it arms itself. The caller holds mu.
func (a *auto) due(u pager.Usage, busy float64) (due bool, named string) {
	page := int64(a.db.pager.PageSize())
	free, pending := int64(u.Free)*page, int64(u.Pending)*page
	reader := oldReader(u.Oldest)
	if reader.Tx == 0 { // then what is pending waits for a flush at most
		free, pending = free+pending, 0
	}
	if a.reader != 0 && a.reader != reader.Tx { // it has ended, and what it held can be had
		a.reader, a.settled = 0, 0
	}
	a.stats.Waits = ""
	enough := func(bytes int64) bool {
		return bytes >= a.opts.MinBytes && float64(bytes) >= a.opts.MinShare*float64(u.FileSize)
	}
	more := free >= a.settled+a.opts.MinBytes || a.settled == 0
	switch {
	case enough(free) && more && busy > a.opts.MaxBusy:
		a.stats.Waits = WaitsForWriters
	case enough(free) && more:
		return true, ""
	case reader.Tx != 0 && (enough(free+pending) && !enough(free) || a.reader != 0 && enough(free)):
		a.stats.Waits = WaitsForReader
		if a.named != reader.Tx {
			a.named = reader.Tx
			named = fmt.Sprintf("%d bytes cannot be given back before the end of a transaction that has been open for more than %v and reads the state of transaction %d, %d before the newest",
				free+pending, reader.Age.Round(time.Millisecond), reader.Tx, reader.Behind)
		}
	default:
		a.settled = min(a.settled, free)
		return false, ""
	}
	a.armLocked()
	return false, named
}

func (a *auto) run(ctx context.Context) (VacuumResult, error) {
	db := a.db
	select {
	case db.vacuuming <- struct{}{}:
		defer func() { <-db.vacuuming }()
	default:
		return VacuumResult{}, nil // another run does it already
	}
	r, err := db.vacuum(ctx, vacuum.Options{Share: a.opts.MaxShare, Gain: gainOfAuto, Fill: fillOfAuto}, nil)
	if err == nil {
		db.logger.Infof("Vacuumed %s in %v: %d -> %d bytes; %d pages written, %d bytes seen by readers", db.path, r.Duration.Round(time.Millisecond), r.SizeBefore, r.SizeAfter, r.PagesWritten, r.Pinned)
	}
	return r, err
}
