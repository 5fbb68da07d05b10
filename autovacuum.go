package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/internal/autovacuum"
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

	// MaxBusy is how busy writers may be when it begins, default 0.5: the time between two
	// looks in which writing transactions waited for one another or were open, as a share of
	// it. Of each transaction the first 5 milliseconds count: one that a program leaves open
	// until its next commit is idle.
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
	WaitsForReader  = autovacuum.WaitsForReader  // one that reads an old state, see Stats.OldestReader
	WaitsForWriters = autovacuum.WaitsForWriters // which are busy
)

// gainOfAuto is the share of pages that joining neighbours must save, and fillOfAuto how
// full pages become by that: full ones are split again by those who write on.
const (
	gainOfAuto = 0.25
	fillOfAuto = 0.8
)

// newAuto makes what vacuums db by itself, not armed.
func newAuto(db *DB, opts AutoVacuum) *autovacuum.Auto {
	opts = opts.withDefaults()
	return autovacuum.New(autovacuum.Options{
		MinShare: opts.MinShare, MinBytes: opts.MinBytes, Interval: opts.Interval, MaxBusy: opts.MaxBusy,
	}, autovacuum.Env{
		PageSize: db.pager.PageSize(),
		Usage:    db.pager.Usage,
		Busy:     func() time.Duration { return time.Duration(db.pager.Counts().Busy.Load()) },
		Vacuum:   func(ctx context.Context) (autovacuum.Done, error) { return db.vacuumItself(ctx, opts.MaxShare) },
		Damaged:  isDamage,
		Warn:     func(text string) { db.logger.Warningf("%s: vacuum waits: %s", db.path, text) },
		Failed:   func(err error) { db.logger.Errorf("Vacuuming %s failed: %v", db.path, err) },
	})
}

// vacuumItself vacuums, unless a vacuum runs already.
func (db *DB) vacuumItself(ctx context.Context, maxShare float64) (autovacuum.Done, error) {
	select {
	case db.vacuuming <- struct{}{}:
		defer func() { <-db.vacuuming }()
	default:
		return autovacuum.Done{}, nil
	}
	r, err := db.vacuum(ctx, vacuum.Options{Share: maxShare, Gain: gainOfAuto, Fill: fillOfAuto}, nil)
	if err == nil {
		db.logger.Infof("Vacuumed %s in %v: %d -> %d bytes; %d pages written, %d bytes seen by readers", db.path, r.Duration.Round(time.Millisecond), r.SizeBefore, r.SizeAfter, r.PagesWritten, r.Pinned)
	}
	return autovacuum.Done{
		SizeBefore: r.SizeBefore, SizeAfter: r.SizeAfter, FreeBefore: r.FreeBefore, Reader: r.Reader.Tx, Result: r,
	}, err
}

// vacuumStats are those of a, which may be nil.
func vacuumStats(a *autovacuum.Auto) VacuumStats {
	s := a.Stats()
	last, _ := s.Last.(VacuumResult)
	return VacuumStats{Running: s.Running, Runs: s.Runs, Freed: s.Freed, Waits: s.Waits, Last: last}
}
