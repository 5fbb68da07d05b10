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

// stream makes a transaction whose pages are written before it is prepared, and gives
// some up in the end.
func (h *history) stream() {
	if len(h.queue) > 0 || h.editing != nil || h.stopped || h.fault != nil {
		return
	}
	w, err := h.BeginWrite()
	if err != nil {
		h.fail("begin: %w", err)
		return
	}
	opts := h.options()
	h.logf("stream, mode %d", opts.Mode)
	h.editing, h.leading = w, true // so that its writes can fail, and none waits for the writer lock in them
	root, err := h.edit(w, w.Stream(int64(1+h.rng.IntN(4))*momentPage, opts))
	h.editing, h.leading = nil, false
	if err == nil && !h.oneIn(4) {
		h.counts["streamed"]++
		h.enqueue(w, root, opts)
		return
	}
	h.counts["streamed and given up"]++
	delete(h.trees, h.last)
	if err != nil && !h.stopped && !h.foundFull(err) {
		h.fail("stream: %w", err)
	}
	if err := w.Rollback(); err != nil && !h.stopped {
		h.fail("rollback: %w", err)
	}
}

// build allocates n runs of two pages each and fills them, and gives the last one.
func build(t *testing.T, s *pager.Stream, n int) (root page.ID, err error) {
	t.Helper()
	for i := range n {
		id, buf, err := s.Allocate(2, false)
		if err != nil {
			return 0, err
		}
		enc := page.NewLeaf(buf, id, 1, 1)
		enc.Leaf(0, []byte("key"), fmt.Appendf(nil, "%0*d", s.PageSize(), i))
		s.Seal(enc.End())
		root = id
	}
	return root, nil
}

// What a Stream has written is neither in memory nor written again, lies one run after
// the other, and needs one flush more than a commit whose pages are listed.
func TestStream(t *testing.T) {
	const runs = 1000
	for _, mode := range []pager.Durability{pager.Full, pager.Periodic, pager.None} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			var ops []vfs.Op
			record := false
			mem := vfs.NewMem("db")
			p, err := pager.Open(vfs.NewInject(mem.Open(), func(op vfs.Op) error {
				if record && (op.Kind == vfs.KindWrite || op.Kind == vfs.KindSync) {
					ops = append(ops, op)
				}
				return nil
			}), pager.Options{PageSize: pageSize, PlainDelay: -1, Scan: scan})
			if err != nil {
				t.Fatal(err)
			}
			w, err := p.BeginWrite()
			if err != nil {
				t.Fatal(err)
			}
			record = true
			opts := pager.CommitOptions{AllocSize: 1 << 20, Mode: mode}
			s := w.Stream(16*pageSize, opts)
			root, err := build(t, s, runs)
			if err != nil {
				t.Fatal(err)
			}
			early := p.Counts().BytesWritten.Load()
			old := w.Base().Meta.Root
			if err := w.Free(old, 1); err != nil {
				t.Fatal(err)
			}
			pr, err := w.Prepare(root, 7, opts)
			if err != nil {
				t.Fatal(err)
			}
			if err := pr.Finish(); err != nil {
				t.Fatal(err)
			}
			if early < (2*runs-18)*pageSize {
				t.Errorf("%d bytes of %d were written before the commit", early, 2*runs*pageSize)
			}
			at, flushes := int64(0), 0
			for _, op := range ops {
				switch {
				case op.Kind == vfs.KindSync:
					flushes++
				case op.Off < 2*pageSize: // a meta
				case op.Off < at:
					t.Errorf("a write at %d after one that ended at %d", op.Off, at)
				case op.Len > 18*pageSize:
					t.Errorf("%d bytes were held", op.Len)
				default:
					at = op.Off + op.Len
				}
			}
			if want := map[pager.Durability]int{pager.Full: 3, pager.Periodic: 3, pager.None: 0}[mode]; flushes != want {
				t.Errorf("%d flushes, want %d", flushes, want)
			}
			snap, err := p.Begin()
			if err != nil {
				t.Fatal(err)
			}
			for id := at/pageSize - 2*runs; id < at/pageSize; id += 2 {
				if _, err := snap.Value().Page(page.ID(id)); err != nil {
					t.Error(err)
				}
			}
			snap.Release()
			if err := p.Close(pager.CloseOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A Stream that cannot write ends with the error, and so does a commit of its
// transaction; nothing of it is left, and the next transaction goes on.
func TestStreamFails(t *testing.T) {
	for name, c := range map[string]struct {
		kind vfs.Kind
		max  int64
		want error
	}{
		"a full disk":         {vfs.KindWrite, 0, syscall.ENOSPC},
		"a full disk, grown":  {vfs.KindGrow, 0, syscall.ENOSPC},
		"a limit of the size": {0, 64 * pageSize, pager.ErrMaxSizeReached},
		"a write error":       {vfs.KindWrite, 0, syscall.EIO},
		"a flush error":       {vfs.KindSync, 0, pager.ErrStopped},
	} {
		t.Run(name, func(t *testing.T) {
			armed := false
			mem := vfs.NewMem("db")
			p, err := pager.Open(vfs.NewInject(mem.Open(), func(op vfs.Op) error {
				if armed && c.max == 0 && op.Kind == c.kind && (op.Kind != vfs.KindWrite || op.Off > 30*pageSize) {
					if c.want == pager.ErrStopped {
						return syscall.EIO
					}
					return c.want
				}
				return nil
			}), pager.Options{PageSize: pageSize, PlainDelay: -1, Scan: scan})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close(pager.CloseOptions{})
			before := mem.Bytes()[:4*pageSize]
			for _, rollback := range []bool{true, false} {
				w, err := p.BeginWrite()
				if err != nil {
					t.Fatal(err)
				}
				armed = true
				opts := pager.CommitOptions{AllocSize: 1 << 12, MaxSize: c.max}
				if _, err = build(t, w.Stream(16*pageSize, opts), 1000); !errors.Is(err, c.want) {
					t.Errorf("got %v", err)
				}
				if err = nil; rollback {
					err = w.Rollback()
				} else if pr, failed := w.Prepare(w.Base().Meta.Root, 9, opts); !errors.Is(failed, c.want) {
					t.Errorf("the commit: %v", failed)
					err = pr.Finish()
				}
				armed = false
				if err != nil {
					t.Fatal(err)
				}
				if c.want == pager.ErrStopped {
					return
				}
			}
			if got := mem.Bytes()[:4*pageSize]; string(got) != string(before) {
				t.Error("a page that was in use is another")
			}
			snap, err := p.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer snap.Release()
			a, err := p.Account(snap.Value())
			if err != nil || !a.Exact || snap.Value().Meta.Sequence != 0 {
				t.Fatalf("%+v, sequence %d, %v", a, snap.Value().Meta.Sequence, err)
			}
			w, err := p.BeginWrite()
			if err != nil {
				t.Fatal(err)
			}
			pr, err := w.Prepare(w.Base().Meta.Root, 3, pager.CommitOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := pr.Finish(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
