package pager_test

import (
	"errors"
	"syscall"
	"testing"

	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// A transaction frees a freelist page that no slot names any more, and is aborted
// while somebody edits, so that it is undone later. What is written meanwhile says
// that the page is in use: if the process ends then, it is not lost.
func TestAbortedOrphanIsRecorded(t *testing.T) {
	e := newEnv(t)
	e.mustCommit("first", 1)
	e.mustCommit("second", 1) // both slots are written: the freelist of the new file is orphaned
	if got := e.reserved(); len(got) != 1 {
		t.Fatalf("reserved are %v", got)
	}
	w, err := e.BeginWrite()
	if err != nil {
		t.Fatal(err)
	}
	g := gate{env: e}
	pr, err := w.Prepare(g.rewrite(w, "third", 1), 0, e.opts) // frees it
	if err != nil {
		t.Fatal(err)
	}
	editing, err := e.BeginWrite()
	if err != nil {
		t.Fatal(err)
	}
	e.next(vfs.KindWrite, 1, syscall.ENOSPC)
	if err := pr.Finish(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the commit: %v", err)
	}
	e.fail = nil
	if err := e.Sync(); err != nil {
		t.Fatal(err)
	}
	left := vfs.NewMem("left")
	if _, err := left.Open().WriteAt(e.mem.Bytes(), 0); err != nil {
		t.Fatal(err)
	}
	if err := editing.Rollback(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("what stood on it: %v", err)
	}
	e.accounted()

	after := &env{t: t, mem: left, opts: e.opts}
	after.open(pager.Options{})
	defer after.close()
	if after.read() != "second" || after.OpenPath() != pager.OpenedByRecord {
		t.Errorf("opening what was left reads %q, by %s", after.read(), after.OpenPath())
	}
	after.accounted()
}
