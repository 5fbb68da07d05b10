package pager_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// edit begins a transaction that has made a new root.
func (e *env) edit() (*pager.WriteTx, page.ID) {
	e.t.Helper()
	w, err := e.BeginWrite()
	if err != nil {
		e.t.Fatal(err)
	}
	if err := w.Free(w.Base().Meta.Root, 1); err != nil {
		e.t.Fatal(err)
	}
	id, buf, err := w.Allocate(1, true)
	if err != nil {
		e.t.Fatal(err)
	}
	enc := page.NewLeaf(buf, id, 0, 0)
	enc.Finish(true)
	return w, id
}

// A Sync that failed while a transaction was in edit stopped the writers to
// come, but not that one: its commit wrote on and was acknowledged, though the
// system may have dropped pages that it builds upon.
func TestCommitAfterFailedSync(t *testing.T) {
	e := newEnv(t)
	e.mustCommit("before", 1)
	w, root := e.edit()
	e.next(vfs.KindSync, 1, syscall.EIO)
	if err := e.Sync(); !errors.Is(err, pager.ErrStopped) || !errors.Is(err, syscall.EIO) {
		t.Errorf("Sync: %v", err)
	}
	e.fail = nil
	e.ops = nil
	if pr, err := w.Prepare(root, 0, e.opts); err == nil {
		t.Fatalf("the commit in edit goes on, and ends with %v", pr.Finish())
	} else if !errors.Is(err, pager.ErrStopped) {
		t.Errorf("the commit in edit: %v", err)
	}
	if got := e.written(); got != "" {
		t.Errorf("written after the failure: %s", got)
	}
	e.accounted()
	if _, err := e.BeginWrite(); !errors.Is(err, pager.ErrStopped) { // the writer lock was released
		t.Errorf("the next writer: %v", err)
	}
	if e.read() != "before" {
		t.Errorf("reads %q", e.read())
	}
}

// A system reports a failed flush once. That of a Sync beside a commit met the
// commit's pages, took the error for itself, and the commit's own flush
// succeeded: an acknowledged commit whose pages were not on the disk.
func TestSyncBesideCommit(t *testing.T) {
	e := newEnv(t)
	e.mustCommit("before", 1)
	w, root := e.edit()
	flushes := e.file.Count(vfs.KindSync)
	written := make(chan struct{})
	committed := make(chan error, 1)
	e.fail = func(op vfs.Op) error {
		switch {
		case op.Kind == vfs.KindSync && op.N == flushes+1: // that of Sync
			go func() {
				pr, err := w.Prepare(root, 0, e.opts)
				if err == nil {
					err = pr.Finish()
				}
				committed <- err
			}()
			select {
			case <-written:
			case <-time.After(50 * time.Millisecond): // the commit waits, as it should
			}
			return syscall.EIO
		case op.Kind == vfs.KindWrite && op.Off >= 2*pageSize:
			close(written)
		}
		return nil
	}
	if err := e.Sync(); !errors.Is(err, pager.ErrStopped) {
		t.Errorf("Sync: %v", err)
	}
	if err := <-committed; !errors.Is(err, pager.ErrStopped) {
		t.Errorf("a commit whose pages failed to be flushed: %v", err)
	}
}
