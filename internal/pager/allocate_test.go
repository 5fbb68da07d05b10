package pager_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// Of a group, the leaves of all members lie together, and so are written with one
// call, although each member has written a root of its own in between.
func TestLeavesOfAGroupLieTogether(t *testing.T) {
	g := newGate(t, pager.Options{})
	const members, size = 12, 200
	for range size { // a file of some length, with nothing free
		w, err := g.BeginWrite()
		if err != nil {
			t.Fatal(err)
		}
		g.leaf(w)
		pr, err := w.Prepare(g.rewrite(w, "x", 1), 1, g.opts)
		if err != nil {
			t.Fatal(err)
		}
		done := finish(pr)
		<-g.arrived
		g.pass <- nil
		wait(t, "a commit", done, nil)
	}
	first := finish(g.prepare("a", 1))
	<-g.arrived
	g.pages()
	var rest []chan error
	last := page.ID(0)
	together := 0 // leaves that follow the one before
	for i := range members {
		w, err := g.BeginWrite()
		if err != nil {
			t.Fatal(err)
		}
		id := g.leaf(w)
		if id == last+1 {
			together++
		}
		last = id
		pr, err := w.Prepare(g.rewrite(w, fmt.Sprint(i), 1), 1, g.opts)
		if err != nil {
			t.Fatal(err)
		}
		rest = append(rest, finish(pr))
	}
	if together < members-2 {
		t.Errorf("%d of %d leaves follow the one before", together, members)
	}
	g.pass <- nil
	wait(t, "the first commit", first, nil)
	<-g.arrived
	calls := 0
	g.mu.Lock()
	for _, op := range g.calls {
		if op.Kind == vfs.KindWrite && op.Off >= 2*pageSize {
			calls++
		}
	}
	g.mu.Unlock()
	if calls > 3 { // leaves in one or two places, and the root
		t.Errorf("%d write calls", calls)
	}
	g.pass <- nil
	for _, done := range rest {
		wait(t, "a commit of the group", done, nil)
	}
	g.letAll()
	g.close()
}

// leaf writes a page that is in no tree.
func (g *gate) leaf(w *pager.WriteTx) page.ID {
	id, buf, err := w.Allocate(1, false)
	if err != nil {
		g.t.Fatal(err)
	}
	enc := page.NewLeaf(buf, id, 0, 0)
	enc.Finish(true)
	return id
}

// A transaction that raised the high-water mark for more pages than it had taken yet
// gave the rest to the free ones, and a check of the state before it, beside it,
// reported pages that do not exist.
func TestAccountBesideALane(t *testing.T) {
	e := newEnv(t)
	const leaves = 8
	for range 2 {
		w, err := e.BeginWrite()
		if err != nil {
			t.Fatal(err)
		}
		before := w.Base().Meta.HighWater
		var last page.ID
		for i := range leaves {
			last, _, err = w.Allocate(1, false)
			if err != nil {
				t.Fatal(err)
			}
			snap, err := e.Begin()
			if err != nil {
				t.Fatal(err)
			}
			a, err := e.Account(snap.Value())
			if err != nil || !a.Exact {
				t.Fatalf("%+v, %v", a, err)
			}
			for _, free := range a.Free {
				if free.End() > before {
					t.Errorf("leaf %d, page %d: %v is free, the high-water mark is %d", i, last, free, before)
				}
			}
			snap.Release()
		}
		pr, err := w.Prepare(w.Base().Meta.Root, 1, e.opts)
		if err == nil {
			err = pr.Finish()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A full disk, and a file with holes at its end, as bbolt leaves it, which cannot be
// filled: each transaction raised the high-water mark into the hole again, though
// pages below were free, and failed.
func TestFullDiskUsesFreePages(t *testing.T) {
	e := newEnv(t)
	const pages = 4
	e.holes(20)
	if err := e.fill(pages); err != nil {
		t.Fatal(err)
	}
	hole := int64(e.highWater()) * pageSize
	e.fail = func(op vfs.Op) error {
		if op.Kind == vfs.KindWrite && op.Off+op.Len > hole {
			return syscall.ENOSPC
		}
		return nil
	}
	if err := e.fill(pages); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the first is to fail, as it takes pages that lie together: %v", err)
	}
	if err := e.fill(pages); err != nil {
		t.Errorf("again: %v", err)
	}
	e.fail = nil
}
