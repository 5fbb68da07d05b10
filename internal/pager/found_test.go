package pager_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// exactly maps no more than the file has, as Windows does.
type exactly struct{ vfs.File }

func (exactly) MapBeyondEnd() bool { return false }

// A transaction that was prepared survived the abort of the next one, which had
// mapped the file anew; the writer after that read the old mapping, which was gone.
func TestSurvivorHasNewMapping(t *testing.T) {
	f, err := vfs.OpenOS(filepath.Join(t.TempDir(), "db"), os.O_RDWR|os.O_CREATE, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	var gated atomic.Bool
	arrived, pass := make(chan bool, 1), make(chan error)
	file := vfs.NewInject(exactly{f}, func(op vfs.Op) error {
		switch {
		case gated.Load() && op.Kind == vfs.KindWrite && op.Len > 100*pageSize:
			return syscall.ENOSPC
		case gated.Load() && op.Kind == vfs.KindSync:
			arrived <- true
			return <-pass
		}
		return nil
	})
	p, err := pager.Open(file, pager.Options{PageSize: pageSize, Scan: scan, PlainDelay: -1})
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{env: &env{Pager: p, t: t, opts: pager.CommitOptions{AllocSize: 1}}}
	g.mustCommit("first", 20)
	gated.Store(true)
	a := finish(g.prepare("a", 1))
	<-arrived
	b := finish(g.prepare("b", 1))
	c := finish(g.prepare("c", 200)) // for which the file is mapped anew
	pass <- nil
	wait(t, "a", a, nil)
	wait(t, "c", c, syscall.ENOSPC)
	<-arrived // b is being flushed
	w, err := p.BeginWrite()
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("fault: %v", r)
			}
		}()
		_, _ = w.Base().Image().Header(page.FirstDataPage)
	}()
	gated.Store(false)
	pass <- nil
	wait(t, "b", b, nil)
	if err := w.Rollback(); err != nil {
		t.Error(err)
	}
	if err := p.Close(pager.CloseOptions{}); err != nil {
		t.Error(err)
	}
}

// Sync, which flushes twice with Periodic, met Close between the two and went on.
func TestSyncBesideClose(t *testing.T) {
	for range 30 {
		g := newGate(t, pager.Options{})
		g.letAll()
		g.opts.Mode = pager.Periodic
		g.mustCommit("visible", 1)
		var gated atomic.Bool
		gated.Store(true)
		g.fail = func(op vfs.Op) error {
			if op.Kind == vfs.KindSync && gated.CompareAndSwap(true, false) {
				g.arrived <- struct{}{}
				return <-g.pass
			}
			return nil
		}
		synced, closed := make(chan error, 1), make(chan error, 1)
		go func() { synced <- g.Sync() }()
		<-g.arrived
		go func() { closed <- g.Close(pager.CloseOptions{Commit: g.opts}) }()
		for !g.Closing() {
			runtime.Gosched()
		}
		g.pass <- nil
		wait(t, "Close", closed, nil)
		if err := <-synced; err != nil && err != pager.ErrDatabaseNotOpen {
			t.Errorf("Sync: %v", err)
		}
	}
}

// A page of the newest state that could not be read at an opening was taken for one
// that had never been written: the commit was dropped for good.
func TestUnreadableIsNotUnfinished(t *testing.T) {
	e := newEnv(t)
	e.mustCommit("before", 1)
	e.mustCommit("acknowledged", 1)
	killed := &env{t: t, mem: vfs.NewMem("killed"), opts: e.opts}
	f := killed.mem.Open()
	if _, err := f.WriteAt(e.mem.Bytes(), 0); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	killed.fail = func(op vfs.Op) error {
		if op.Kind == vfs.KindRead && op.Off >= 2*pageSize {
			return syscall.EIO
		}
		return nil
	}
	if err := killed.tryOpen(pager.Options{}); !errors.Is(err, syscall.EIO) {
		t.Errorf("opening with a page that cannot be read: %v", err)
	}
	killed.fail = nil
	killed.open(pager.Options{})
	if killed.read() != "acknowledged" {
		t.Errorf("and then it finds %q", killed.read())
	}
	killed.close()
}

// After commits with None and a Sync everything is durable. Close wrote a freelist
// page and a meta that names it without a flush: bbolt could find the meta alone.
func TestCloseAfterSyncFlushes(t *testing.T) {
	e := newEnv(t)
	e.opts.Mode = pager.None
	e.mustCommit("a", 1)
	e.mustCommit("b", 1)
	if err := e.Sync(); err != nil {
		t.Fatal(err)
	}
	e.ops = nil
	e.close()
	if got := e.written(); got != "p s m0 s" && got != "p s m1 s" {
		t.Errorf("Close writes %s", got)
	}
}

// Each transaction kept the one that it had begun upon, as long as there was always
// one in the queue.
func TestNoChainOfTransactions(t *testing.T) {
	g := newGate(t, pager.Options{})
	var collected atomic.Int64
	done := finish(g.prepare("a", 1))
	<-g.arrived
	const rounds = 500
	for range rounds {
		next := g.prepare("b", 1) // while the one before is flushed
		runtime.AddCleanup(next, func(int) { collected.Add(1) }, 0)
		g.pass <- nil
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		done = finish(next)
		<-g.arrived
		g.pages()
	}
	for i := 0; collected.Load() < rounds/2; i++ {
		if i == 1000 {
			t.Fatalf("%d of %d are collected", collected.Load(), rounds)
		}
		runtime.GC()
	}
	g.letAll()
	g.pass <- nil
	wait(t, "the last", done, nil)
}

// With Periodic a full file stayed full for whoever tried again.
func TestFullThenAgainPeriodic(t *testing.T) {
	e := periodic(t, pager.Options{})
	e.opts.AllocSize = 1
	e.mustCommit("big", 60)
	if err := e.Sync(); err != nil {
		t.Fatal(err)
	}
	e.opts.MaxSize = 70 * pageSize
	e.mustCommit("small", 1)
	if err := e.commit("big again", 50); err == nil {
		t.Fatal("the file has more room than this test thinks")
	}
	e.mustCommit("big again", 50)
}

// What an opening settles that had to scan says nothing of free pages: none is
// recorded, which is not the same as that none is free.
func TestNothingIsRecordedBehindAScan(t *testing.T) {
	e := newEnv(t)
	e.mustCommit("older", 6)
	e.mustCommit("old", 1)
	slots := e.slots()
	before, err := slots.Best()
	if err != nil {
		t.Fatal(err)
	}
	e.mustCommit("newest", 2)
	left := bytes.Clone(e.mem.Bytes()) // as of a power failure: the newest pages are not there,
	snap, err := e.Begin()
	if err != nil {
		t.Fatal(err)
	}
	clear(left[snap.Value().Meta.Root*pageSize:][:pageSize])
	snap.Release()
	clear(left[before*pageSize:][page.ExtensionOffset:pageSize]) // nor the record of those before
	for range 2 {
		killed := &env{t: t, mem: vfs.NewMem("killed"), opts: e.opts}
		f := killed.mem.Open()
		if _, err := f.WriteAt(left, 0); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		killed.open(pager.Options{})
		if got := killed.read(); got != "old" || killed.OpenPath() != pager.OpenedByScan {
			t.Errorf("%q was opened, by %s", got, killed.OpenPath())
		}
		killed.accounted()
		left = bytes.Clone(killed.mem.Bytes()) // killed before anything else is written
		killed.close()
	}
}
