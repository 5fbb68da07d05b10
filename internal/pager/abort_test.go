package pager_test

import (
	"syscall"
	"testing"

	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// Of a group whose last member fails, nothing is left that would keep the pages of
// the first from being written, also when another transaction gets the number of
// the one that failed and does not free them.
func TestAbortedFreesAreForgotten(t *testing.T) {
	g := newGate(t, pager.Options{})
	b := g.prepare("b", 2)
	c := g.prepare("c", 1)
	failed := false
	g.failing = func(op vfs.Op) error {
		if op.Kind == vfs.KindWrite && op.Off >= 2*pageSize && !failed {
			failed = true
			return syscall.ENOSPC
		}
		return nil
	}
	wait(t, "c", finish(c), syscall.ENOSPC) // which led
	w, err := g.BeginWrite()
	if err != nil {
		t.Fatal(err)
	}
	number := w.ID()
	x, err := w.Prepare(w.Base().Meta.Root, 5, g.opts)
	if err != nil {
		t.Fatal(err)
	}
	done := finish(x)
	<-g.arrived
	g.pass <- nil
	wait(t, "what stands on b", done, nil)
	wait(t, "b", finish(b), nil)
	g.letAll()
	if g.read() != "b" {
		t.Errorf("reads %q", g.read())
	}
	snap, err := g.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if s := snap.Value(); s.Tx != number || s.Meta.Sequence != 5 {
		t.Errorf("the state is that of transaction %d with sequence %d, want %d and 5", s.Tx, s.Meta.Sequence, number)
	}
	snap.Release()
	g.accounted()
}

// A transaction that fails gives back what it was to free for others: freelist
// pages that no slot names any more.
func TestAbortedOrphansStay(t *testing.T) {
	e := newEnv(t)
	e.mustCommit("first", 1)
	e.close()
	e.open(pager.Options{})
	e.mustCommit("over one slot", 1)
	e.mustCommit("over the other", 1)
	e.fail = func(op vfs.Op) error {
		if op.Kind == vfs.KindWrite && op.Off >= 2*pageSize {
			return syscall.ENOSPC
		}
		return nil
	}
	free := e.Counts().FreePages.Load() + e.Counts().PendingPages.Load()
	if err := e.commit("fails", 1); err == nil {
		t.Fatal("a commit whose pages cannot be written succeeds")
	}
	e.fail = nil
	if n := e.Counts().FreePages.Load() + e.Counts().PendingPages.Load(); n != free {
		t.Errorf("%d pages are free, before the failure %d were", n, free)
	}
	e.accounted()
	e.mustCommit("after", 1)
	e.accounted()
	if n := e.Counts().FreePages.Load() + e.Counts().PendingPages.Load(); n <= free {
		t.Errorf("%d pages are free, and %d were before those of a freelist became so", n, free)
	}
}
