package pager_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// periodic is an env with Periodic whose timer does not run out.
func periodic(t *testing.T, opts pager.Options) *env {
	e := newEnvWith(t, opts)
	e.mustCommit("first", 1)
	e.opts.Mode = pager.Periodic
	e.ops = nil
	return e
}

// Between flushes each commit writes its pages and then the same slot; a flush,
// with nothing else, makes them durable, and the next commit takes the other.
func TestPeriodicOrder(t *testing.T) {
	e := periodic(t, pager.Options{})
	for range 2 {
		for i := range 3 {
			e.mustCommit(fmt.Sprint("text ", i), uint64(1+i))
			if got := e.written(); got != "p m1" {
				t.Errorf("commit %d: %s", i, got)
			}
			if e.read() != fmt.Sprint("text ", i) {
				t.Errorf("commit %d: reads %q", i, e.read())
			}
			e.accounted()
		}
		if err := e.Sync(); err != nil {
			t.Fatal(err)
		}
		// The flush, and for bbolt a meta of the newest state in the other slot.
		if got := e.written(); got != "s m0 s" {
			t.Errorf("Sync: %s", got)
		}
		e.accounted()
	}
}

// What is not durable is bounded in time and in bytes.
func TestPeriodicBounds(t *testing.T) {
	e := periodic(t, pager.Options{PeriodicBytes: 8 * pageSize})
	commits := 0
	for ; commits < 100; commits++ {
		e.mustCommit(fmt.Sprint("text ", commits), uint64(1+commits%9))
		if got := e.written(); got == "p m1 s" || got == "p m0 s" {
			break
		}
	}
	if commits == 100 {
		t.Error("100 commits without a flush")
	}

	// The timer runs out: in time, somebody flushes.
	flushed := make(chan struct{}, 100)
	e = periodic(t, pager.Options{PeriodicDelay: time.Millisecond})
	e.fail = func(op vfs.Op) error {
		if op.Kind == vfs.KindSync {
			flushed <- struct{}{}
		}
		return nil
	}
	e.mustCommit("timed", 1)
	<-flushed
	e.close()
}

// Commits that return are there after the process was killed, and after Close.
func TestPeriodicKill(t *testing.T) {
	e := periodic(t, pager.Options{})
	for i := range 20 {
		e.mustCommit(fmt.Sprint("text ", i), uint64(1+i%4))
		killed := &env{t: t, mem: vfs.NewMem("killed"), opts: e.opts}
		f := killed.mem.Open()
		if _, err := f.WriteAt(e.mem.Bytes(), 0); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		killed.open(pager.Options{})
		if got := killed.read(); got != fmt.Sprint("text ", i) || killed.OpenPath() != pager.OpenedByRecord {
			t.Errorf("killed after commit %d: finds %q, by %s", i, got, killed.OpenPath())
		}
		killed.accounted()
		killed.close()
	}
	e.close()
	e.open(pager.Options{})
	if e.read() != "text 19" {
		t.Errorf("after Close: %q", e.read())
	}
	e.accounted()
}

// Commits that return are there after the process was killed, also if those with
// other modes, flushes and failed writes come in between.
func TestModesKill(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		e := periodic(t, pager.Options{PeriodicBytes: 40 * pageSize})
		want := "first"
		for i := range 40 {
			e.opts.Mode = pager.Durability(rng.IntN(3))
			failed := rng.IntN(8) == 0
			if failed {
				e.next(vfs.KindWrite, 1, syscall.ENOSPC)
			}
			text := fmt.Sprint("text ", i)
			err := e.commit(text, uint64(1+rng.IntN(6)))
			if failed != errors.Is(err, syscall.ENOSPC) || !failed && err != nil {
				t.Fatalf("seed %d: commit %d: %v", seed, i, err)
			}
			if e.fail = nil; err == nil {
				want = text
			}
			switch rng.IntN(8) {
			case 0:
				if err := e.Sync(); err != nil {
					t.Fatal(err)
				}
			case 1:
				e.FlushVisible()
			}
			killed := &env{t: t, mem: e.mem.Clone(), opts: e.opts}
			killed.open(pager.Options{})
			if got := killed.read(); got != want || killed.OpenPath() != pager.OpenedByRecord {
				t.Errorf("seed %d: killed after commit %d: finds %q, not %q, by %s", seed, i, got, want, killed.OpenPath())
			}
			killed.accounted()
			killed.close()
		}
		e.close()
	}
}

// A flush that fails: readers that begin get what is durable, those that hold a
// newer state are told, nothing more is written.
func TestPeriodicFlushFails(t *testing.T) {
	e := periodic(t, pager.Options{})
	if err := e.Sync(); err != nil {
		t.Fatal(err)
	}
	durable, err := e.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer durable.Release()
	e.mustCommit("visible", 1)
	held, err := e.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	e.next(vfs.KindSync, 1, syscall.EIO)
	if err := e.Sync(); !errors.Is(err, pager.ErrStopped) {
		t.Errorf("Sync: %v", err)
	}
	e.fail = nil
	if e.read() != "first" {
		t.Errorf("a new reader reads %q", e.read())
	}
	if err := e.Lost(held.Value()); !errors.Is(err, pager.ErrStopped) {
		t.Errorf("the reader of what was visible is told %v", err)
	}
	if err := e.Lost(durable.Value()); err != nil {
		t.Errorf("the reader of what is durable is told %v", err)
	}
	if err := e.commit("more", 1); !errors.Is(err, pager.ErrStopped) {
		t.Errorf("the next commit: %v", err)
	}
}

// Of a commit's two flushes the first makes durable what was visible. A failure after it took that
// back all the same: readers that began then saw the state before it, and those of it were told
// that it was lost.
func TestPeriodicSecondFlushFails(t *testing.T) {
	for name, c := range map[string]struct {
		kind   vfs.Kind
		n      int64 // of the calls of that kind in the commit
		cause  error
		writes string
		reads  string // what a new reader does
	}{
		"the first flush":       {vfs.KindSync, 1, syscall.EIO, "p s", "first"},
		"the meta":              {vfs.KindWrite, 2, syscall.EIO, "p s m0", "visible"},
		"half of the meta":      {vfs.KindWrite, 2, &vfs.PartialWrite{Bytes: pageSize / 2, Err: syscall.EIO}, "p s m0", "visible"},
		"no room for all of it": {vfs.KindWrite, 2, &vfs.PartialWrite{Bytes: 20, Err: syscall.ENOSPC}, "p s m0", "visible"},
		"the second flush":      {vfs.KindSync, 2, syscall.EIO, "p s m0 s", "visible"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, pager.Options{PeriodicDelay: time.Hour})
			g.letAll()
			g.opts.Mode = pager.Periodic
			g.mustCommit("visible", 1)
			held, err := g.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer held.Release()
			lost := g.prepare("lost", 2)
			g.next(c.kind, c.n, c.cause)
			failing, flushed := g.fail, (*vfs.Mem)(nil)
			g.fail = func(op vfs.Op) error {
				if op.Kind == vfs.KindWrite && op.Off < 2*pageSize {
					flushed = g.mem.Clone() // what the disk has for certain
				}
				return failing(op)
			}
			g.ops = nil
			if err := g.Sync(); !errors.Is(err, pager.ErrStopped) { // for which the commit takes two flushes
				t.Errorf("Sync: %v", err)
			}
			wait(t, "the commit", finish(lost), pager.ErrStopped)
			if got := g.written(); got != c.writes {
				t.Errorf("writes %s, want %s", got, c.writes)
			}
			if g.fail = nil; g.read() != c.reads {
				t.Errorf("a new reader reads %q, want %q", g.read(), c.reads)
			}
			if err := g.Lost(held.Value()); (err == nil) != (c.reads == "visible") {
				t.Errorf("the reader of what was visible is told %v", err)
			}
			if flushed != nil {
				g.accounted()
				g.mem = flushed
				g.opensAs("visible")
			}
		})
	}
}

// The other modes in between: a durable commit takes what is visible with it, and
// after commits without flushes one comes first.
func TestPeriodicBesideOtherModes(t *testing.T) {
	e := periodic(t, pager.Options{})
	for i, c := range []struct {
		mode pager.Durability
		want string
	}{
		{pager.Periodic, "p m1"}, {pager.Full, "p m1 s"}, {pager.Periodic, "p m0"}, {pager.Periodic, "p m0"},
		{pager.None, "p m0"}, {pager.None, "p m1"}, {pager.Periodic, "s p m0"}, {pager.Full, "p m0 s"}, {pager.None, "p m1"},
		{pager.Full, "s p m0 s"},
	} {
		e.opts.Mode = c.mode
		e.mustCommit(fmt.Sprint("text ", i), 1)
		if got := e.written(); got != c.want {
			t.Errorf("commit %d: %s, want %s", i, got, c.want)
		}
		e.accounted()
	}
	e.opts.Mode = pager.Full
	e.close()
	e.open(pager.Options{})
	if e.read() != "text 9" {
		t.Errorf("reads %q", e.read())
	}
	e.accounted()
}
