package pager_test

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// A transaction reads what it has streamed, in memory and in the file, also when the file
// was mapped again; what it gives up is free at once, unless it was read, and never
// written over a later owner.
func TestStreamOwn(t *testing.T) {
	mem := vfs.NewMem("db")
	p, err := pager.Open(mem.Open(), pager.Options{PageSize: pageSize, PlainDelay: -1, Scan: scan})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(pager.CloseOptions{})
	w, err := p.BeginWrite()
	if err != nil {
		t.Fatal(err)
	}
	s := w.Appender(8*pageSize, pager.CommitOptions{AllocSize: 1 << 12})
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i), 3}, pageSize) }
	read := func(id page.ID, i int) []byte {
		t.Helper()
		pg, err := w.Page(id)
		if err != nil {
			t.Fatal(err)
		}
		e, err := pg.Leaf(0)
		if err != nil || len(e.Value) < pageSize/2 || e.Value[0] != byte(i) {
			t.Fatalf("page %d is not that of %d: %v", id, i, err)
		}
		return e.Value
	}
	small := func(i int) page.ID {
		t.Helper()
		id, buf, err := s.Allocate(1, false)
		if err != nil {
			t.Fatal(err)
		}
		enc := page.NewLeaf(buf, id, 1, 0)
		enc.Leaf(0, []byte("k"), value(i)[:pageSize/2])
		s.Seal(enc.End())
		return id
	}
	large := func(i int) page.ID {
		t.Helper()
		id, n, err := s.WriteLeaf([]byte("k"), value(i), true)
		if err != nil || n != 3 {
			t.Fatal(n, err)
		}
		return id
	}
	first := small(1)
	if err := w.Free(first, 1); err != nil { // still in a buffer
		t.Fatal(err)
	}
	if again := small(2); again != first {
		t.Errorf("page %d was given up, and %d taken", first, again)
	}
	wide := large(3)
	if err := w.Free(wide, 3); err != nil {
		t.Fatal(err)
	}
	if again := large(4); again != wide {
		t.Errorf("pages from %d on were given up, and %d taken", wide, again)
	}
	var ids []page.ID
	for i := range 200 { // beyond what is mapped
		ids = append(ids, small(i), large(i))
	}
	lent := read(first, 2)
	for i := range 200 {
		read(ids[2*i], i)
		read(ids[2*i+1], i)
	}
	if err := w.Free(first, 1); err != nil { // somebody may look at it
		t.Fatal(err)
	}
	if again := small(5); again == first || lent[0] != 2 {
		t.Error("what was read is given away")
	}
	if err := w.Free(first, 1); err == nil {
		err = w.EndEdit()
		if err == nil {
			t.Error("it was given up twice")
		}
	}
	if err := w.Rollback(); err != nil {
		t.Fatal(err)
	}
	snap, err := p.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	if a, err := p.Account(snap.Value()); err != nil || !a.Exact || len(a.Free) != 0 {
		t.Errorf("%+v %v", a, err)
	}
}

// A transaction that gave up a page in flight, and read another then, took the full disk, for which that
// flight had failed, for damage: giving up had met the error, and dropped it.
func TestStreamGivesUpWhatWasNotWritten(t *testing.T) {
	full := false
	p, err := pager.Open(vfs.NewInject(vfs.NewMem("db").Open(), func(op vfs.Op) error {
		if full && op.Kind == vfs.KindWrite {
			return syscall.ENOSPC
		}
		return nil
	}), pager.Options{PageSize: pageSize, PlainDelay: -1, Scan: scan})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(pager.CloseOptions{})
	for _, readFirst := range []bool{false, true} {
		full = false
		w, err := p.BeginWrite()
		if err != nil {
			t.Fatal(err)
		}
		s := w.Appender(8*pageSize, pager.CommitOptions{AllocSize: 1 << 12})
		s.WriteBehind()
		full = true
		first, err := build(t, s, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := build(t, s, 5); err != nil { // the first four take off
			t.Fatal(err)
		}
		if readFirst {
			if _, err := w.Page(first + 2); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("the first page read: %v", err)
			}
		}
		if err := w.Free(first, 2); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a page is given up: %v", err)
		}
		if _, err := w.Page(first + 2); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a page is read: %v", err)
		}
		if err := w.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}
