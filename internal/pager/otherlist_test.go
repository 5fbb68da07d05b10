package pager_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// After a Close that leaves a freelist, a commit, and an end without Close, the
// older meta still names that freelist. Opening the file scanned it, took the
// freelist's pages for free, and the next commit wrote into them before it had
// overwritten the older meta. They must wait until it has.
func TestOtherSlotsFreelistIsReserved(t *testing.T) {
	for _, recorded := range []bool{true, false} {
		t.Run(fmt.Sprint("recorded ", recorded), func(t *testing.T) { otherSlotsFreelist(t, recorded) })
	}
}

// otherSlotsFreelist opens the file with or without what our metas record.
func otherSlotsFreelist(t *testing.T, recorded bool) {
	strict := pager.Options{StrictCompat: true}
	e := newEnvWith(t, strict)
	for i := range uint64(6) {
		e.mustCommit(fmt.Sprint("early ", i), 6-i) // holes
	}
	e.close()
	slots := e.slots()
	older, err := slots.Best()
	if err != nil {
		t.Fatal(err)
	}
	list := slots.Meta[older].Freelist
	if list == page.NoFreelist {
		t.Fatal("Close left no freelist")
	}
	if !recorded {
		e.forgetRecords()
	}
	e.open(strict)
	e.mustCommit("newer", 1) // in the other slot, without a freelist
	if err := e.Close(pager.CloseOptions{NoFreelist: true, Commit: e.opts}); err != nil {
		t.Fatal(err)
	}

	if !recorded {
		e.forgetRecords()
	}
	e.open(strict)
	e.accounted()
	if !slices.Contains(e.reserved(), page.Extent{Start: list, N: 1}) {
		t.Errorf("reserved are %v, and not page %d, the freelist of the other slot", e.reserved(), list)
	}
	was := slices.Clone(e.mem.Bytes()[list*pageSize:][:pageSize])
	metas := 0
	e.fail = func(op vfs.Op) error {
		if op.Kind == vfs.KindWrite && op.Off < 2*pageSize {
			if metas++; op.Off != int64(older)*pageSize {
				t.Errorf("the meta at %d is overwritten, not that of slot %d", op.Off, older)
			}
			if !bytes.Equal(e.mem.Bytes()[list*pageSize:][:pageSize], was) {
				t.Error("the freelist is overwritten before the meta that names it")
			}
		}
		return nil
	}
	// As many pages as are free: if that one is among them, it is taken.
	for n := uint64(12); n > 0; n-- {
		w, err := e.BeginWrite()
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			if id, _, err := w.Allocate(1, true); err != nil || id == list {
				t.Errorf("allocated page %d, %v", id, err)
			}
		}
		w.Rollback()
	}
	e.mustCommit("over the older meta", 1)
	e.fail = nil
	if metas != 1 {
		t.Errorf("%d metas were written, want 1", metas)
	}
	e.accounted()
	e.mustCommit("frees it", 1)
	if got := e.reserved(); len(got) > 0 {
		t.Errorf("reserved are %v once no slot names a freelist", got)
	}
	taken := false // and then the page is used again
	for range 4 {
		w, err := e.BeginWrite()
		if err != nil {
			t.Fatal(err)
		}
		for range 12 {
			id, _, err := w.Allocate(1, true)
			if err != nil {
				t.Fatal(err)
			}
			taken = taken || id == list
		}
		w.Rollback()
		e.mustCommit("more", 1)
	}
	if !taken {
		t.Errorf("page %d is lost", list)
	}
	e.accounted()
}

// Pages of the other slot's freelist that are in use by now belong to whoever
// uses them: that slot is the one that is wrong.
func TestOtherSlotsFreelistInUse(t *testing.T) {
	e := newEnv(t)
	e.mustCommit("text", 1)
	if err := e.Close(pager.CloseOptions{NoFreelist: true, Commit: e.opts}); err != nil {
		t.Fatal(err)
	}
	slots := e.slots()
	best, _ := slots.Best()
	e.forgetRecords()
	for _, list := range []page.ID{slots.Meta[best].Root, 1, slots.Meta[best].HighWater, page.NoFreelist - 1} {
		m := slots.Meta[1-best]
		m.Freelist = list
		buf := make([]byte, pageSize)
		page.EncodeMeta(buf, page.ID(1-best), m, nil)
		f := e.mem.Open()
		if _, err := f.WriteAt(buf, int64(1-best)*pageSize); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		e.forgetRecords()
		e.open(pager.Options{})
		if got := e.reserved(); len(got) > 0 {
			t.Errorf("freelist at %d: reserved are %v", uint64(list), got)
		}
		e.accounted()
		if err := e.Close(pager.CloseOptions{NoFreelist: true, Commit: e.opts}); err != nil {
			t.Fatal(err)
		}
	}
}

// forgetRecords makes the file one that bbolt wrote: its metas say nothing of
// free pages.
func (e *env) forgetRecords() {
	for slot := range int64(2) {
		f := e.mem.Open()
		if _, err := f.WriteAt(make([]byte, pageSize-page.ExtensionOffset), slot*pageSize+page.ExtensionOffset); err != nil {
			e.t.Fatal(err)
		}
		_ = f.Close()
	}
}

// reserved is what is used and not by a tree.
func (e *env) reserved() []page.Extent {
	e.t.Helper()
	snap, err := e.Begin()
	if err != nil {
		e.t.Fatal(err)
	}
	defer snap.Release()
	a, err := e.Account(snap.Value())
	if err != nil {
		e.t.Fatal(err)
	}
	return a.Reserved
}
