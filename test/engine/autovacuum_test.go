package engine

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast"
	"holdfast/test/hook"
)

// eager vacuums as soon as it looks, which is at once.
func eager() *holdfast.AutoVacuum {
	return &holdfast.AutoVacuum{MinBytes: 256 << 10, Interval: time.Millisecond, MaxShare: 1, MaxBusy: 1}
}

// bloat fills the file with 4 MiB and deletes nearly all of it.
func bloat(t *testing.T, db *holdfast.DB) {
	t.Helper()
	fillAndDelete(t, db, "b", 4096, 1000, func(i int) bool { return i%50 == 0 })
}

// until waits for a condition of the statistics.
func until(t *testing.T, db *holdfast.DB, what string, ok func(holdfast.Stats) bool) {
	t.Helper()
	must(t, within(t, what, func() error {
		for !ok(db.Stats()) {
			time.Sleep(time.Millisecond)
		}
		return nil
	}))
}

// untilShort waits until the file is short and no vacuum runs.
func untilShort(t *testing.T, db *holdfast.DB, what string) {
	t.Helper()
	until(t, db, what, func(s holdfast.Stats) bool {
		return s.Vacuum.Runs > 0 && !s.Vacuum.Running && length(t, db) <= 1<<20
	})
}

func TestAutoVacuum(t *testing.T) {
	db := open(t, tempPath(t), &holdfast.Options{AutoVacuum: eager()})
	bloat(t, db)
	want := content(t, db)
	untilShort(t, db, "vacuum after commits")
	s := db.Stats().Vacuum
	if s.Runs == 0 || s.Last.SizeAfter == 0 || s.Waits != "" {
		t.Errorf("%+v", s)
	}
	if content(t, db) != want {
		t.Error("the content is another")
	}
	checkDB(t, db)
	noneLeft(t, "when the file is short")
	must(t, db.Close())
}

// It looks at a file that is too long when it is opened, too, and not at one that is
// dense enough.
func TestAutoVacuumAfterOpen(t *testing.T) {
	path := tempPath(t)
	db := open(t, path, nil)
	bloat(t, db)
	if s := db.Stats().Vacuum; s != (holdfast.VacuumStats{}) {
		t.Errorf("it is off, and the statistics are %+v", s)
	}
	must(t, db.Close())
	choosy := eager()
	choosy.MinBytes = 1 << 30
	db = open(t, path, &holdfast.Options{AutoVacuum: choosy})
	fillAndDelete(t, db, "c", 10, 10, func(int) bool { return true })
	must(t, db.Close())
	if size := fileSize(t, path); size < 4<<20 {
		t.Errorf("the file has %d bytes although less is free than MinBytes", size)
	}
	t.Setenv("HOLDFAST_AUTO_VACUUM", "off")
	db = open(t, path, &holdfast.Options{AutoVacuum: eager()})
	untilShort(t, db, "vacuum after opening")
	must(t, db.Close())
}

// A reader that sees most of what is free delays it, and is named once.
func TestAutoVacuumWaitsForReader(t *testing.T) {
	log := &warnings{}
	db := open(t, tempPath(t), &holdfast.Options{AutoVacuum: eager(), Logger: log})
	fillAndDelete(t, db, "b", 4096, 1000, func(int) bool { return true })
	reader := begin(t, db, false)
	id := reader.ID()
	update(t, db, func(tx *holdfast.Tx) { must(t, tx.DeleteBucket([]byte("b"))) })
	until(t, db, "vacuum to wait", func(s holdfast.Stats) bool { return s.Vacuum.Waits == holdfast.WaitsForReader })
	s := db.Stats()
	if s.OldestReader.Tx != uint64(id) || s.OldestReader.Behind < 1 || s.OldestReader.Age <= 0 {
		t.Errorf("the oldest reader is %+v, want transaction %d", s.OldestReader, id)
	}
	if got := log.text(); strings.Count(got, fmt.Sprintf("the state of transaction %d,", id)) != 1 {
		t.Errorf("the log says %q", got)
	}
	must(t, reader.Rollback())
	untilShort(t, db, "vacuum after the reader")
	if s := db.Stats(); s.OldestReader != (holdfast.OldReader{}) || s.Vacuum.Waits != "" {
		t.Errorf("%+v", s)
	}
	must(t, db.Close())
}

// Writers that have little time to spare delay it. What happened: the test had a timer look while a
// goroutine wrote, and failed when the machine was so busy that it looked twice without a write between.
func TestAutoVacuumWaitsForWriters(t *testing.T) {
	opts := eager()
	opts.MaxBusy = 1e-12
	opts.Interval = time.Hour // the test looks
	db := open(t, tempPath(t), &holdfast.Options{AutoVacuum: opts})
	bloat(t, db)
	for range 3 {
		update(t, db, func(*holdfast.Tx) {
			for start := time.Now(); time.Since(start) == 0; { // a clock may advance in large steps
				runtime.Gosched()
			}
		})
		again := hook.LookForVacuum(db)
		if s := db.Stats().Vacuum; s.Waits != holdfast.WaitsForWriters || s.Runs != 0 || !again {
			t.Fatalf("after a write: %+v, it looks again: %v", s, again)
		}
	}
	hook.LookForVacuum(db) // nothing was written since
	if s := db.Stats().Vacuum; s.Waits != "" || s.Runs != 1 || length(t, db) > 1<<20 {
		t.Fatalf("after the writers: %+v, %d bytes", s, length(t, db))
	}
	must(t, db.Close())
}

// Close ends it at the next step.
func TestAutoVacuumAndClose(t *testing.T) {
	slow := eager()
	slow.MaxShare = 1e-9
	path := tempPath(t)
	db := open(t, path, &holdfast.Options{AutoVacuum: slow})
	bloat(t, db)
	want := content(t, db)
	until(t, db, "vacuum to begin", func(s holdfast.Stats) bool { return s.Vacuum.Running })
	must(t, within(t, "close", db.Close))
	noneLeft(t, "after Close")
	db = open(t, path, nil)
	if content(t, db) != want {
		t.Error("the content is another")
	}
	checkDB(t, db)
	must(t, db.Close())
}

func TestAutoVacuumOptions(t *testing.T) {
	for _, a := range []holdfast.AutoVacuum{
		{MinShare: -0.1}, {MinShare: 1.1}, {MaxBusy: 2}, {MaxShare: -1}, {MinBytes: -1}, {Interval: -1},
	} {
		if db, err := holdfast.Open(tempPath(t), 0o600, &holdfast.Options{AutoVacuum: &a}); err == nil {
			t.Errorf("%+v is accepted", a)
			_ = db.Close()
		}
	}
	t.Setenv("HOLDFAST_AUTO_VACUUM", "sometimes")
	if db, err := holdfast.Open(tempPath(t), 0o600, nil); err == nil || !strings.Contains(err.Error(), "HOLDFAST_AUTO_VACUUM") {
		t.Errorf("the error is %v", err)
		_ = db.Close()
	}
}

// warnings keeps what a Logger is warned of.
type warnings struct {
	holdfast.DefaultLogger
	mu    sync.Mutex
	lines []string
}

func (w *warnings) Warningf(format string, v ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, fmt.Sprintf(format, v...))
}

func (w *warnings) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.lines, "\n")
}

func (w *warnings) Infof(string, ...any)  {}
func (w *warnings) Errorf(string, ...any) {}

// A reader was open while it worked. Nearly all was free after that and could not be given
// back, and it took that for what cannot be had for good.
func TestAutoVacuumGoesOnBehindAReader(t *testing.T) {
	path := tempPath(t)
	db := open(t, path, &holdfast.Options{NoSync: true})
	fillAndDelete(t, db, "b", 8000, 1000, func(i int) bool { return i >= 7900 })
	must(t, db.Close())
	opts := eager()
	opts.Interval = 50 * time.Millisecond // so that the reader begins before it looks
	db = open(t, path, &holdfast.Options{AutoVacuum: opts, NoSync: true})
	reader := begin(t, db, false)
	touch := func() {
		update(t, db, func(tx *holdfast.Tx) { put(t, tx.Bucket([]byte("b")), "key00007999", "value") })
	}
	touch()
	until(t, db, "a run beside the reader", func(s holdfast.Stats) bool { return s.Vacuum.Runs > 0 && !s.Vacuum.Running })
	touch()
	must(t, reader.Rollback())
	touch()
	untilShort(t, db, "vacuum after the reader")
	must(t, db.Close())
}

// A logger that asked for the statistics was called with their lock held.
func TestAutoVacuumLoggerAsksForStatistics(t *testing.T) {
	log := &asking{}
	db := open(t, tempPath(t), &holdfast.Options{AutoVacuum: eager(), Logger: log})
	log.db.Store(db)
	fillAndDelete(t, db, "b", 4096, 1000, func(int) bool { return true })
	reader := begin(t, db, false)
	update(t, db, func(tx *holdfast.Tx) { must(t, tx.DeleteBucket([]byte("b"))) })
	must(t, within(t, "the logger to be told", func() error {
		for log.asked.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		return nil
	}))
	must(t, reader.Rollback())
	must(t, within(t, "close", db.Close))
}

type asking struct {
	warnings
	db    atomic.Pointer[holdfast.DB]
	asked atomic.Int64
}

func (a *asking) Warningf(string, ...any) {
	a.db.Load().Stats()
	a.asked.Add(1)
}
