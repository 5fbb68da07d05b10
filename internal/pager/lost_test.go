package pager_test

import (
	"errors"
	"syscall"
	"testing"

	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// What happened: with Periodic a flush failed while another transaction was in edit. What was visible was lost, and its pages
// unpinned, before the transactions that stood on it were rolled back: the program ended in a panic of the free space.
func TestLostWhileEdited(t *testing.T) {
	for _, edited := range []bool{false, true} {
		g := &gate{env: periodic(t, pager.Options{})}
		g.opts.Mode = pager.Full
		g.mustCommit("first", 500)
		g.opts.Mode = pager.Periodic
		g.mustCommit("visible", 2) // frees many pages of the durable state
		g.opts.Mode = pager.Full
		lost := g.prepare("lost", 3) // frees pages of the visible one
		var w *pager.WriteTx
		if edited {
			var err error
			if w, err = g.BeginWrite(); err != nil {
				t.Fatal(err)
			}
		}
		g.next(vfs.KindSync, 1, syscall.EIO)
		if err := lost.Finish(); !errors.Is(err, pager.ErrStopped) && !errors.Is(err, syscall.EIO) {
			t.Errorf("Finish: %v", err)
		}
		g.fail = nil
		if g.read() != "first" { // who begins and ends to read has what no one sees unpinned
			t.Errorf("reads %q", g.read())
		}
		if edited {
			if _, _, err := w.Allocate(40, true); err != nil && !errors.Is(err, pager.ErrStopped) { // looks for what readers have given up
				t.Error(err)
			}
			if err := w.Rollback(); err == nil {
				t.Error("what the transaction stands on is lost, and Rollback returned nil")
			}
		}
	}
}
