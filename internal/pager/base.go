package pager

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"holdfast/internal/commit"
	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// ErrTornCopy is wrapped by the error of opening a file that does not hold a state
// which was durable before its metas were written.
var ErrTornCopy = errors.New("pages of its last flushes are missing: a copy of a file in use?")

// tornCopy is the error of a file in whose meta page slot is a state that is not there.
func tornCopy(slot int, what string) error {
	return &page.CorruptError{Page: page.ID(slot), Err: ErrTornCopy, Reason: what + ": is it a copy of a file in use? " +
		"Then copy that again, with holdfast compact, with Tx.WriteTo, or while no program has it open; " +
		"if it is none, its pages are damaged. What it holds can be saved with holdfast salvage"}
}

// checkBase looks at the pages of a state that opening is about to believe because the
// winning slot's own meta describes it. It was durable when that meta was written, so the
// pages of the flush that made it durable must be there: the other slot lists them, as
// long as it has that flush's meta page. (docs/design.md has why no crash, and nothing
// that may write the file, changes them before the list is gone.)
//
// A page that cannot be read is none of its business: what needs it fails.
func (p *Pager) checkBase(f *found, other *extension.Extension) error {
	if other == nil || other.Trailing == nil || other.Tx != f.tx {
		return nil
	}
	t := other.Trailing
	if f.meta.Root != t.Root || f.meta.Sequence != t.Sequence || f.meta.HighWater != t.HighWater {
		p.logf("%s: the slots name two states under the number %d", p.file.Name(), f.tx)
		return nil
	}
	why, err := p.verify(f.meta, t)
	if err != nil {
		p.logf("%s: the pages of transaction %d cannot be verified: %v", p.file.Name(), f.tx, err)
		return nil
	}
	if why == nil {
		return nil
	}
	records := newRuns(other.Free)
	if !p.recordsWhole(records, other) {
		// bbolt takes the pages of records for free, and may have been at work.
		p.logf("%s: the pages of transaction %d cannot be verified: free pages were recorded in some", p.file.Name(), f.tx)
		return nil
	}
	if !f.unfinished && p.isEdited(records, t) {
		p.logf("%s: pages of transaction %d have changed since they were written", p.file.Name(), f.tx)
		return nil
	}
	if f.unfinished {
		return tornCopy(f.best, "neither of the last two flushes is whole")
	}
	return tornCopy(f.best, "the last flush is not whole, though a later one says that it was")
}

// newRuns are the runs in which a free set is recorded; none of none.
func newRuns(free *extension.FreeSet) []extension.Run {
	if free == nil {
		return nil
	}
	var runs []extension.Run
	if free.Snapshot.Pages > 0 {
		runs = append(runs, free.Snapshot)
	}
	return append(runs, free.Logs...)
}

// recordsWhole tells whether those of runs in which the flush of ext has written are as
// it left them.
func (p *Pager) recordsWhole(runs []extension.Run, ext *extension.Extension) bool {
	h, err := extension.NewHasher(ext.Key)
	if err != nil {
		return false
	}
	t := ext.Trailing
	for i, r := range runs {
		purpose := extension.OfLog
		if i == 0 && ext.Free.Snapshot.Pages > 0 {
			purpose = extension.OfSnapshot
		}
		listed := false
		_ = extension.Extents(t.Written, t.HighWater, func(e page.Extent) error {
			listed = listed || e.Start < r.Extent().End() && r.Start < e.End()
			return nil
		})
		if !listed {
			continue
		}
		if uint64(r.Bytes) > commit.RecordLimit(purpose, t.HighWater, p.pageSize) {
			return false
		}
		b, err := p.readRun(r, t.HighWater)
		if err != nil || h.Sum(purpose, r.Start, b) != r.Hash || !p.zeroAfter(r) {
			return false
		}
	}
	return true
}

// zeroAfter tells whether the rest of the last page of a run is zero, as it was written: the
// list's hash covers it, and that of the run does not.
func (p *Pager) zeroAfter(r extension.Run) bool {
	n := int(r.Bytes) % p.pageSize
	if n == 0 {
		return true
	}
	rest := make([]byte, p.pageSize-n)
	if _, err := p.file.ReadAt(rest, int64(r.Start)*int64(p.pageSize)+int64(r.Bytes)); err != nil {
		return false
	}
	for _, b := range rest {
		if b != 0 {
			return false
		}
	}
	return true
}

// isEdited tells whether one page run that a trailing extension lists was changed in
// place, or damaged, so that reading it says so: bbolt's surgery leaves seals as they
// were. What a copy has mixed has right seals, but for runs that it has cut.
func (p *Pager) isEdited(records []extension.Run, t *extension.Trailing) bool {
	inRecord := func(id page.ID) bool {
		return slices.ContainsFunc(records, func(r extension.Run) bool { return r.Start <= id && id < r.Extent().End() })
	}
	wrong := 0
	err := extension.Extents(t.Written, t.HighWater, func(e page.Extent) error {
		for e.N > 0 {
			n := uint64(1)
			if !inRecord(e.Start) {
				run, err := p.listedRun(e)
				if err != nil {
					return err
				}
				if page.CheckSeal(run, e.Start) == page.WrongSeal {
					wrong++
				}
				n = uint64(len(run) / p.pageSize)
			}
			e = page.Extent{Start: e.Start + page.ID(n), N: e.N - n}
		}
		return nil
	})
	return err == nil && wrong == 1
}

// listedRun reads the page run at the beginning of e, which is verified already as far as
// reading it goes.
func (p *Pager) listedRun(e page.Extent) ([]byte, error) {
	head := make([]byte, page.HeaderSize)
	at := int64(e.Start) * int64(p.pageSize)
	if _, err := p.file.ReadAt(head, at); err != nil {
		return nil, err
	}
	h := page.DecodeHeader(head)
	n := uint64(h.Overflow) + 1
	if h.ID != e.Start || n > e.N {
		return nil, errUnfinished
	}
	run := make([]byte, int(n)*p.pageSize)
	_, err := p.file.ReadAt(run, at)
	return run, err
}

// checkRoot refuses a root page that is that of another bucket, as a copy has it that took the
// page too late: its keys would read as a database without any buckets. A root bucket with
// keys and no bucket is right if nothing else is in the file: through a cursor bbolt lets a
// program put keys there. Without a record or a list of free pages that is not known, unless
// none is free, and the file is refused.
func (p *Pager) checkRoot(s *State) error {
	if p.opts.KeysOnly == nil {
		return nil
	}
	var fault error // none of its business
	torn := false
	func() {
		defer s.image.CatchFault(debug.SetPanicOnFault(true), &fault)
		pages, only := p.opts.KeysOnly(s)
		torn = only && !p.isAll(s, pages)
	}()
	if !torn {
		return nil
	}
	return tornCopy(p.found.best, fmt.Sprintf("it names page %d as that of the root bucket, which has keys and no bucket, though the file has other pages in use", s.Meta.Root))
}

// checkTop refuses a state in which no program would get far.
func (p *Pager) checkTop(s *State) (err error) {
	if p.opts.Top == nil {
		return nil
	}
	defer s.image.CatchFault(debug.SetPanicOnFault(true), &err)
	return p.opts.Top(s)
}

// isAll tells whether the pages of the root bucket, so many, are all that the state uses but
// for the metas, records of free pages and freelists.
func (p *Pager) isAll(s *State, pages uint64) bool {
	used := 2 + pages
	lists := map[page.ID]bool{}
	for _, m := range append(p.slots.Meta[:], s.Meta) {
		if m.Freelist == page.NoFreelist || m.Freelist == 0 || lists[m.Freelist] {
			continue
		}
		lists[m.Freelist] = true
		free, n, err := s.image.Freelist(m.Freelist)
		if err != nil {
			continue // what was a list may be a page of a tree by now
		}
		used += n
		if p.found.free == nil && m.Freelist == s.Meta.Freelist {
			for _, e := range free {
				used += e.N
			}
		}
	}
	if p.found.free != nil {
		used += p.found.free.Free.Count
		for _, r := range newRuns(p.found.free.Free) {
			used += uint64(r.Pages)
		}
	}
	return used == uint64(s.Meta.HighWater)
}
