package autovacuum

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/page"
	"holdfast/internal/pager"
)

const pageSize = 4096

var errDamage = errors.New("damage")

// database is what an Auto sees of one, with a file of 1,000 pages.
type database struct {
	free, pending uint64
	reader        page.TxID     // state that an old reader sees; 0: there is none
	busy          time.Duration // in which writers have had the writer lock
	done          Done
	err           error
	runs          int
	log           []string
}

func (d *database) usage() (pager.Usage, error) {
	u := pager.Usage{FileSize: 1000 * pageSize, Free: d.free, Pending: d.pending}
	if d.reader != 0 {
		u.Oldest = pager.Held{Tx: d.reader, Age: 3, Since: time.Now().Add(-time.Second)}
	}
	return u, nil
}

// auto vacuums d if 250 pages are free, and looks when the test says so. Its last look was a second ago.
func (d *database) auto(t *testing.T) *Auto {
	a := New(Options{MinShare: 0.25, MinBytes: 100 * pageSize, Interval: time.Hour, MaxBusy: 0.5}, Env{
		PageSize: pageSize,
		Usage:    d.usage,
		Busy:     func() time.Duration { return d.busy },
		Vacuum:   func(context.Context) (Done, error) { d.runs++; return d.done, d.err },
		Damaged:  func(err error) bool { return errors.Is(err, errDamage) },
		Warn:     func(text string) { d.log = append(d.log, text) },
		Failed:   func(err error) { d.log = append(d.log, err.Error()) },
	})
	a.looked = time.Now().Add(-time.Second)
	t.Cleanup(a.Stop)
	return a
}

// TestDue: what is free, readers and writers decide whether a look vacuums, and whether it looks again.
func TestDue(t *testing.T) {
	for name, c := range map[string]struct {
		db    database
		runs  int
		waits string
		armed bool
	}{
		"enough":                     {database{free: 250}, 1, "", false},
		"too little":                 {database{free: 249}, 0, "", false},
		"enough after a flush":       {database{free: 200, pending: 50}, 1, "", false},
		"busy writers":               {database{free: 250, busy: time.Hour}, 0, WaitsForWriters, true},
		"a reader":                   {database{free: 200, pending: 50, reader: 7}, 0, WaitsForReader, true},
		"enough in spite of readers": {database{free: 250, pending: 50, reader: 7}, 1, "", false},
		"nothing, and a reader":      {database{free: 1, pending: 1, reader: 7}, 0, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			a := c.db.auto(t)
			a.Look()
			if s := a.Stats(); c.db.runs != c.runs || s.Waits != c.waits || a.Armed() != c.armed {
				t.Errorf("%d runs, waits for %q, armed %v", c.db.runs, s.Waits, a.Armed())
			}
		})
	}
}

// TestAlwaysBusyWriters: with MaxBusy 1 no writers are too busy. What happened: the waits of several writers were added up, and
// were more than all of the time.
func TestAlwaysBusyWriters(t *testing.T) {
	d := &database{free: 250, busy: time.Hour}
	a := d.auto(t)
	a.opts.MaxBusy = 1
	if a.Look(); d.runs != 1 {
		t.Errorf("%d runs, waits for %q", d.runs, a.Stats().Waits)
	}
}

// TestReaderIsNamedOnce: the log names the reader for which vacuum waits, each once.
func TestReaderIsNamedOnce(t *testing.T) {
	d := &database{free: 200, pending: 50, reader: 7}
	a := d.auto(t)
	for _, reader := range []page.TxID{7, 7, 9, 9} {
		d.reader = reader
		a.Look()
	}
	if len(d.log) != 2 || !strings.Contains(d.log[0], "transaction 7,") || !strings.Contains(d.log[1], "transaction 9,") {
		t.Errorf("the log says %q", d.log)
	}
}

// TestNotAgainForTheSame: what a run could not give back does not start another.
func TestNotAgainForTheSame(t *testing.T) {
	d := &database{free: 300, done: Done{SizeBefore: 1000 * pageSize, SizeAfter: 1000 * pageSize, FreeBefore: 300 * pageSize}}
	a := d.auto(t)
	a.Look()
	d.free = 399
	a.Look()
	if d.runs != 1 {
		t.Errorf("%d runs", d.runs)
	}
	d.free = 400 // MinBytes more
	a.Look()
	if d.runs != 2 || a.Stats().Runs != 2 {
		t.Errorf("%d runs, %+v", d.runs, a.Stats())
	}
}

// TestAfterReader: a run that a reader kept from more goes on when the reader has ended.
func TestAfterReader(t *testing.T) {
	d := &database{free: 300, reader: 7, done: Done{SizeBefore: 1000 * pageSize, SizeAfter: 990 * pageSize, FreeBefore: 300 * pageSize, Reader: 7}}
	a := d.auto(t)
	a.Look()
	a.Look()
	if s := a.Stats(); d.runs != 1 || s.Waits != WaitsForReader || s.Freed != 10*pageSize || !a.Armed() {
		t.Errorf("%d runs, %+v, armed %v", d.runs, s, a.Armed())
	}
	d.reader, d.done.Reader = 0, 0
	a.Look()
	if d.runs != 2 || a.Stats().Waits != "" {
		t.Errorf("%d runs, %+v", d.runs, a.Stats())
	}
}

// TestDamageIsTriedOnce: an error is in the log; of damage there is no second run for the same pages.
func TestDamageIsTriedOnce(t *testing.T) {
	for _, c := range []struct {
		err  error
		runs int
	}{{errDamage, 1}, {errors.New("a full disk"), 2}} {
		d := &database{free: 300, err: c.err, done: Done{SizeBefore: 1000 * pageSize, FreeBefore: 300 * pageSize}}
		d.done.SizeAfter = d.done.SizeBefore
		a := d.auto(t)
		a.Look()
		a.Look()
		if d.runs != c.runs || len(d.log) != c.runs {
			t.Errorf("%v: %d runs, the log says %q", c.err, d.runs, d.log)
		}
	}
}

// TestStop: a stopped Auto does not look any more, and a nil one does nothing.
func TestStop(t *testing.T) {
	d := &database{free: 300}
	a := d.auto(t)
	a.Arm()
	if !a.Armed() {
		t.Error("it is not armed")
	}
	a.Stop()
	a.Look()
	a.Arm()
	if d.runs != 0 || a.Armed() {
		t.Errorf("%d runs, armed %v", d.runs, a.Armed())
	}
	var none *Auto
	none.Arm()
	none.Stop()
	if none.Stats() != (Stats{}) {
		t.Error("a nil Auto has statistics")
	}
}

// What happened: beside readers that came and went, a database of which much was free and nothing could be given back was
// vacuumed at each look: the end of any reader was taken for that of one that had kept something. Another one, whose vacuum failed
// each time, tried and said so in the log for as long as a reader was open.
func TestVainRunsRest(t *testing.T) {
	vain := Done{SizeBefore: 1000 * pageSize, SizeAfter: 1000 * pageSize, FreeBefore: 300 * pageSize}
	for name, d := range map[string]*database{"nothing given back": {done: vain}, "failed": {err: errors.New("no room")}} {
		d.free = 300
		a := d.auto(t)
		look := func() {
			d.reader++ // the one before has ended
			d.done.Reader = uint64(d.reader)
			a.Look()
		}
		for range 100 {
			look()
		}
		if d.runs != 2 {
			t.Errorf("%s: %d runs within one interval", name, d.runs)
		}
		a.rests = time.Now()
		if look(); d.runs != 3 || time.Until(a.rests) < 7*a.opts.Interval {
			t.Errorf("%s: %d runs after the rest; the next one lasts %v", name, d.runs, time.Until(a.rests))
		}
		for range 20 {
			a.rests = time.Now()
			look()
		}
		if rest := time.Until(a.rests); rest > 64*a.opts.Interval {
			t.Errorf("%s: it rests for %v", name, rest)
		}
		runs := d.runs
		d.free += 100
		if look(); d.runs != runs+1 {
			t.Errorf("%s: no run though much more is free", name)
		}
		d.err, d.done = nil, Done{SizeBefore: 1000 * pageSize, SizeAfter: 900 * pageSize, FreeBefore: int64(d.free) * pageSize}
		a.rests = time.Now()
		look()
		if a.vain != 0 || !a.rests.IsZero() {
			t.Errorf("%s: it rests after a run that gave something back", name)
		}
	}
}

// What happened: after writing had stopped, each look beside a reader tried again, and said in the log that it could not.
func TestStoppedIsTheEnd(t *testing.T) {
	d := &database{free: 300, reader: 7, err: fmt.Errorf("vacuum: %w", pager.ErrStopped), done: Done{Reader: 7}}
	a := d.auto(t)
	for range 10 {
		a.Look()
		a.Arm()
	}
	if d.runs != 1 || len(d.log) != 1 || a.Armed() {
		t.Errorf("%d runs, armed %v; the log says %q", d.runs, a.Armed(), d.log)
	}
}

// What happened: the database was closed while the log was told for whom vacuum waits. Close returned, and a logger that was used up
// with the database was called.
func TestStopWaitsForTheLog(t *testing.T) {
	d := &database{free: 200, pending: 50, reader: 7}
	a := d.auto(t)
	warning, ended := make(chan struct{}), false
	a.env.Warn = func(string) {
		close(warning)
		time.Sleep(20 * time.Millisecond)
		ended = true
	}
	go a.Look()
	<-warning
	if a.Stop(); !ended {
		t.Error("Stop has returned while the log was told something")
	}
}

// A commit that freed much, just after a look had seen how much was free, had not armed it again, since it was armed
// still: nothing was vacuumed until the next commit.
func TestCommitDuringLook(t *testing.T) {
	for _, failed := range []error{nil, errors.New("no usage")} {
		d := database{free: 1}
		a := d.auto(t)
		a.opts.Interval = 20 * time.Millisecond
		vacuumed := make(chan bool)
		a.env.Vacuum = func(context.Context) (Done, error) {
			close(vacuumed)
			return Done{}, nil
		}
		usage := a.env.Usage
		a.env.Usage = func() (pager.Usage, error) {
			u, _ := usage()
			if d.free == 500 {
				return u, nil
			}
			d.free = 500
			a.Arm()
			return u, failed
		}
		a.Arm() // its timer looks
		select {
		case <-vacuumed:
		case <-time.After(10 * time.Second):
			t.Fatal("nothing is vacuumed")
		}
	}
}
