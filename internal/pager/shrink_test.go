package pager_test

import (
	"errors"
	"syscall"
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// shrinkable is a gate in front of a file with free pages at its end.
func shrinkable(t *testing.T) *gate {
	g := newGate(t, pager.Options{PlainDelay: -1})
	gate := g.fail
	g.letAll()
	g.PlaceLow(true)
	g.mustCommit("long", 40)
	for range 4 {
		g.mustCommit("short", 1)
	}
	g.fail = gate
	return g
}

// lowered prepares a transaction that lowers the high-water mark.
func (g *gate) lowered(text string) *pager.Prepared {
	g.t.Helper()
	w, err := g.BeginWrite()
	if err != nil {
		g.t.Fatal(err)
	}
	root := g.rewrite(w, text, 1)
	w.Lower()
	pr, err := w.Prepare(root, uint64(len(text)), g.opts)
	if err != nil {
		g.t.Fatal(err)
	}
	return pr
}

// The file is not cut off below what a prepared transaction needs, also if one that
// stands on it needs less: that one may fail, and then the other is the newest.
func TestCutLeavesWhatIsPrepared(t *testing.T) {
	g := shrinkable(t)
	shrunk := make(chan error, 1)
	go func() {
		_, err := g.Shrink(nil)
		shrunk <- err
	}()
	<-g.arrived // its flush, behind which the file is cut off
	w, err := g.BeginWrite()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Rise(10); err != nil {
		t.Fatal(err)
	}
	high := w.HighWater()
	first, err := w.Prepare(g.rewrite(w, "high", 1), 4, g.opts)
	if err != nil {
		t.Fatal(err)
	}
	second := g.lowered("low")
	cut, failed := false, false
	g.mu.Lock()
	g.failing = func(op vfs.Op) error {
		cut = cut || op.Kind == vfs.KindTruncate
		if op.Kind == vfs.KindWrite && op.Off >= 2*pageSize && !failed {
			failed = true
			return syscall.ENOSPC
		}
		return nil
	}
	g.mu.Unlock()
	go func() {
		for {
			select {
			case <-g.arrived:
			case <-t.Context().Done():
				return
			}
			select {
			case g.pass <- nil:
			case <-t.Context().Done():
				return
			}
		}
	}()
	g.pass <- nil
	wait(t, "the lowered one", finish(second), syscall.ENOSPC)
	wait(t, "the one before", finish(first), nil)
	wait(t, "Shrink", shrunk, nil)
	if !cut || !failed {
		t.Fatalf("cut off %t, failed %t: the test is not what it was", cut, failed)
	}
	if g.highWater() != high {
		t.Errorf("the high-water mark is %d, of the one that was committed %d", g.highWater(), high)
	}
	if size := page.ID(len(g.mem.Bytes()) / pageSize); size < high {
		t.Errorf("the file has %d pages, the state %d", size, high)
	}
	g.letAll()
	g.accounted()
}

// The error of a truncation is the answer of Shrink, and changes nothing; the next
// one cuts off what this one did not.
func TestTruncationFails(t *testing.T) {
	g := shrinkable(t)
	g.letAll()
	pr := g.lowered("low")
	if err := pr.Finish(); err != nil {
		t.Fatal(err)
	}
	before := len(g.mem.Bytes())
	g.fail = func(op vfs.Op) error {
		if op.Kind == vfs.KindTruncate {
			return syscall.EIO
		}
		return nil
	}
	if size, err := g.Shrink(nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("Shrink says %d, %v", size, err)
	}
	if len(g.mem.Bytes()) != before || g.read() != "low" {
		t.Errorf("%d bytes, %d before; reads %q", len(g.mem.Bytes()), before, g.read())
	}
	g.letAll()
	size, err := g.Shrink(nil)
	if err != nil || size >= int64(before) || size != int64(len(g.mem.Bytes())) {
		t.Errorf("Shrink says %d, %v; %d bytes, %d before", size, err, len(g.mem.Bytes()), before)
	}
	g.mustCommit("after", 1)
	g.accounted()
}
