package pager_test

import (
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// Marks are forgotten of each page that is written, by whatever call, and of few others.
func TestMarksOfWrittenPages(t *testing.T) {
	const runs, pageSize = 100, 4096
	for _, streamed := range []bool{false, true} {
		var writes []vfs.Op
		p, err := pager.Open(vfs.NewInject(vfs.NewMem("marks").Open(), func(op vfs.Op) error {
			if op.Kind == vfs.KindWrite && op.Off >= 2*pageSize {
				writes = append(writes, op)
			}
			return nil
		}), pager.Options{PageSize: pageSize, PlainDelay: -1, Scan: scan})
		if err != nil {
			t.Fatal(err)
		}
		var before []page.Extent // by the last transaction
		for round := range 4 {
			forgotten(t, p, &writes, func() {
				before = replace(t, p, streamed, runs, before)
			}, round >= 2) // of pages that are used again
		}
		if err := p.Close(pager.CloseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// forgotten marks all pages, calls change and looks which marks are there. reuse: some must not be.
func forgotten(t *testing.T, p *pager.Pager, writes *[]vfs.Op, change func(), reuse bool) {
	t.Helper()
	snap, err := p.Begin()
	if err != nil {
		t.Fatal(err)
	}
	high := snap.Value().Meta.HighWater
	mark := func(s *pager.State, id page.ID) page.Mark {
		b, err := s.Image().Run(id, 1)
		if err != nil {
			t.Fatal(err)
		}
		return s.Mark(b, []byte("page"))
	}
	for id := range high {
		mark(snap.Value(), id).Set()
	}
	snap.Release()
	*writes = nil
	change()
	if snap, err = p.Begin(); err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	written, near := map[page.ID]bool{}, map[page.ID]bool{}
	for _, op := range *writes {
		for at := op.Off; at < op.Off+op.Len; at += 4096 {
			id := page.ID(at / 4096)
			written[id], near[id/16] = true, true
		}
	}
	n := 0
	for id := range high {
		is := mark(snap.Value(), id).IsSet()
		if is && written[id] {
			t.Errorf("page %d was written and is marked", id)
		}
		if !is && !near[id/16] {
			t.Errorf("page %d was not written, nor one next to it, and is not marked", id)
		}
		if written[id] {
			n++
		}
	}
	if reuse && n < 50 {
		t.Errorf("%d pages were written again", n)
	}
}

// replace commits a transaction that frees what the last one allocated, and allocates runs.
func replace(t *testing.T, p *pager.Pager, streamed bool, runs int, before []page.Extent) (after []page.Extent) {
	t.Helper()
	w, err := p.BeginWrite()
	if err != nil {
		t.Fatal(err)
	}
	opts := pager.CommitOptions{AllocSize: 1 << 20, Mode: pager.Full}
	var a allocator = w
	if streamed {
		a = w.Stream(16*4096, opts)
	}
	if before == nil {
		before = []page.Extent{{Start: w.Base().Meta.Root, N: 1}}
	}
	for _, e := range before {
		if err := w.Free(e.Start, e.N); err != nil {
			t.Fatal(err)
		}
	}
	for range runs {
		id, buf, err := a.Allocate(2, false)
		if err != nil {
			t.Fatal(err)
		}
		enc := page.NewLeaf(buf, id, 1, 1)
		enc.Leaf(0, []byte("key"), make([]byte, 4096))
		a.Seal(enc.End())
		after = append(after, page.Extent{Start: id, N: 2})
	}
	pr, err := w.Prepare(after[runs-1].Start, 7, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := pr.Finish(); err != nil {
		t.Fatal(err)
	}
	return after
}
