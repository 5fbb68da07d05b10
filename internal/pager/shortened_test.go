package pager_test

import (
	"errors"
	"syscall"
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// cut takes the last page, which nobody uses, off the file.
func (e *env) cut() {
	e.t.Helper()
	f := e.mem.Open()
	if err := f.Truncate(int64(len(e.mem.Bytes())) - pageSize); err != nil {
		e.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		e.t.Fatal(err)
	}
}

// Of commits that are not flushed one in some looks whether somebody has shortened
// the file. Another made it as long as it was, or longer, and from then on nobody
// could tell.
func TestShortenedIsNotGrown(t *testing.T) {
	for _, mode := range []pager.Durability{pager.Full, pager.Periodic, pager.None} {
		for _, beyond := range []uint64{0, 1, 500} {
			e := periodic(t, pager.Options{})
			e.opts.Mode = mode
			e.mustCommit("before", 1)
			size := len(e.mem.Bytes())
			pages := uint64(size/pageSize) - uint64(e.highWater()) + beyond
			e.cut()
			if err := e.commit("long", pages); !errors.Is(err, pager.ErrStopped) {
				t.Errorf("mode %d, %d pages more than the file: %v", mode, beyond, err)
			}
			if now := len(e.mem.Bytes()); now != size-pageSize {
				t.Errorf("mode %d, %d pages more than the file: %d bytes have become %d", mode, beyond, size-pageSize, now)
			}
		}
	}
}

// A commit that is flushed though it is none with Full, or the first of its group is
// none, had nobody look at the length of the file.
func TestShortenedIsNotFlushed(t *testing.T) {
	for name, flushed := range map[string]func(t *testing.T) (*env, func() error){
		"much is visible": func(t *testing.T) (*env, func() error) {
			e := periodic(t, pager.Options{PeriodicBytes: pageSize})
			e.mustCommit("visible", 2)
			return e, func() error { return e.commit("flushed", 1) }
		},
		"its list is too long": func(t *testing.T) (*env, func() error) {
			e := periodic(t, pager.Options{})
			e.opts.Mode = pager.Full
			holes := e.holes(900)
			e.opts.Mode = pager.Periodic
			return e, func() error { return e.fill(holes) }
		},
		"behind one with None": func(t *testing.T) (*env, func() error) {
			g := newGate(t, pager.Options{})
			g.letAll()
			g.opts.Mode = pager.None
			first := g.prepare("first", 1)
			g.opts.Mode = pager.Full
			second := g.prepare("second", 1)
			return g.env, func() error {
				if err := second.Finish(); err != nil {
					return err
				}
				return first.Finish()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, commit := flushed(t)
			e.cut()
			flushes := count(e, vfs.KindSync)
			if err := commit(); !errors.Is(err, pager.ErrStopped) {
				t.Errorf("commit: %v", err)
			}
			if n := count(e, vfs.KindSync) - flushes; n != 0 {
				t.Errorf("%d flushes", n)
			}
		})
	}
}

// holes commits so many pages that are in no tree, and gives every other one back.
func (e *env) holes(n int) (pages int) {
	e.t.Helper()
	var ids []page.ID
	for range 2 {
		w, err := e.BeginWrite()
		if err != nil {
			e.t.Fatal(err)
		}
		for i, id := range ids {
			if i%2 == 0 {
				if err := w.Free(id, 1); err != nil {
					e.t.Fatal(err)
				}
				pages++
			}
		}
		for ids == nil || pages == 0 && len(ids) < n {
			id, _, err := w.Allocate(1, false)
			if err != nil {
				e.t.Fatal(err)
			}
			ids = append(ids, id)
		}
		e.end(w)
	}
	for range 2 { // nobody holds them any more
		e.mustCommit("free", 1)
	}
	return pages
}

// fill commits so many pages, one by one.
func (e *env) fill(pages int) error {
	w, err := e.BeginWrite()
	if err != nil {
		return err
	}
	for range pages {
		if _, _, err := w.Allocate(1, false); err != nil {
			e.t.Fatal(err)
		}
	}
	pr, err := w.Prepare(w.Base().Meta.Root, 1, e.opts)
	if err != nil {
		return err
	}
	return pr.Finish()
}

// end commits with the root as it is.
func (e *env) end(w *pager.WriteTx) {
	e.t.Helper()
	pr, err := w.Prepare(w.Base().Meta.Root, 1, e.opts)
	if err == nil {
		err = pr.Finish()
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// Writing has stopped because the file is too short. What was visible then stayed so,
// though it never becomes durable, and nobody was told.
func TestShortenedEndsWhatIsVisible(t *testing.T) {
	for name, stop := range map[string]func(e *env) error{
		"the timer looks":     func(*env) error { return pager.ErrStopped },
		"Sync has looked":     func(e *env) error { return e.Sync() },
		"a commit has looked": func(e *env) error { return e.commit("long", 500) },
	} {
		t.Run(name, func(t *testing.T) {
			e := periodic(t, pager.Options{})
			e.mustCommit("visible", 1)
			held, err := e.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer held.Release()
			e.cut()
			if err := stop(e); !errors.Is(err, pager.ErrStopped) {
				t.Errorf("%v", err)
			}
			e.FlushVisible()
			if e.read() != "first" {
				t.Errorf("a new reader reads %q", e.read())
			}
			if err := e.Lost(held.Value()); !errors.Is(err, pager.ErrStopped) {
				t.Errorf("the reader of what was visible is told %v", err)
			}
		})
	}
}

// The length of the file could not be told when the timer ran out, and what was
// visible was not flushed, then or later.
func TestVisibleIsFlushedWithoutLength(t *testing.T) {
	e := periodic(t, pager.Options{})
	e.mustCommit("visible", 1)
	e.next(vfs.KindSize, 1, syscall.EIO)
	flushes := count(e, vfs.KindSync)
	e.FlushVisible()
	if n := count(e, vfs.KindSync) - flushes; n != 1 {
		t.Errorf("%d flushes", n)
	}
	if e.read() != "visible" {
		t.Errorf("reads %q", e.read())
	}
	e.fail = nil
}

// What happened: the file was shortened after a commit, and the timer of the plain meta, which did not look at its length, wrote
// a meta page into it.
func TestShortenedGetsNoPlainMeta(t *testing.T) {
	e := periodic(t, pager.Options{PlainDelay: -1})
	e.opts.Mode = pager.Full
	e.mustCommit("committed", 1)
	e.cut()
	writes := count(e, vfs.KindWrite)
	e.PlainNow()
	if n := count(e, vfs.KindWrite) - writes; n != 0 {
		t.Errorf("%d writes", n)
	}
	if err := e.commit("more", 1); !errors.Is(err, pager.ErrStopped) {
		t.Errorf("a commit after that: %v", err)
	}
}
