package pager

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"holdfast/internal/page"
	"holdfast/internal/plant"
)

// stop makes err the answer to every later write, unless there is one already.
func (p *Pager) stop(err error) error {
	err = fmt.Errorf("%w: %s: %w", ErrStopped, p.file.Name(), err)
	p.stopped.CompareAndSwap(nil, &err)
	return p.stoppedBy()
}

// stoppedBy is what the writer was stopped by; nil if it was not.
func (p *Pager) stoppedBy() error {
	if err := p.stopped.Load(); err != nil {
		return *err
	}
	return nil
}

// CloseOptions say how to leave the file.
type CloseOptions struct {
	NoFreelist bool // do not write a freelist page
	Commit     CommitOptions
}

// Close waits for the writer and for all snapshots, leaves a freelist page
// behind so that the next to open the file need not scan it, and closes the
// file. A second Close does nothing.
func (p *Pager) Close(opts CloseOptions) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	if p.closed.Swap(true) {
		return nil
	}
	last := p.states.Current().Tx
	p.states.Close()()
	p.commit.Lock()
	defer p.commit.Unlock()
	var errs []error
	if !p.opts.ReadOnly && !opts.NoFreelist && p.stoppedBy() == nil {
		err := p.leaveFreelist(last+1, opts.Commit)
		switch {
		case errors.Is(err, ErrStopped):
			if !plant.On(plant.CloseErrorSwallowed) {
				errs = append(errs, err)
			}
		case err != nil: // a full disk, say: the next to open the file scans it
			p.logf("close %s without a freelist page: %v", p.file.Name(), err)
		}
	}
	if p.gen != nil {
		errs = append(errs, p.gen.mapping.Close())
		p.gen = nil
	}
	p.flushing.Lock() // a Sync may be under way
	defer p.flushing.Unlock()
	if p.stoppedBy() != nil && !plant.On(plant.CloseNoDrop) {
		p.forget()
	}
	if !p.opts.ReadOnly {
		errs = append(errs, p.file.Unlock())
	}
	errs = append(errs, p.file.Close())
	return errors.Join(errs...)
}

// leaveFreelist commits a state that differs from the current one in naming a
// freelist page. Nothing happens if the file's better slot names one already.
func (p *Pager) leaveFreelist(tx page.TxID, opts CommitOptions) error {
	best, err := p.slots.Best()
	if err != nil || p.slots.Meta[best].Freelist != page.NoFreelist {
		return err
	}
	if err := p.checkLength(); err != nil {
		return err
	}
	m := p.slots.Meta[best]
	txn := p.space.Begin(tx)
	var slot int
	if slot, m.Label = p.slots.Next(); m.Label > page.MaxLabel {
		txn.Rollback()
		return page.Corruptf(page.ID(slot), "transaction ids are used up")
	}
	old := p.lists[slot]
	if old.N > 0 {
		if err := txn.Free(old); err != nil {
			txn.Rollback()
			return err
		}
	}
	n := p.space.FreeCount() + p.space.PendingCount() + old.N + p.recordPages(txn)
	pages := (page.FreelistSize(n) + uint64(p.pageSize) - 1) / uint64(p.pageSize)
	id, err := txn.Allocate(pages)
	if err != nil {
		txn.Rollback()
		return err
	}
	rec, err := p.plan(txn)
	if err != nil {
		txn.Rollback()
		return err
	}
	txn.Commit()
	list := page.Extent{Start: id, N: pages}
	p.complete(rec, tx, slot, list)
	m.Freelist, m.HighWater = id, txn.HighWater()
	buf := make([]byte, pages*uint64(p.pageSize))
	p.encodeFreelist(buf, list, &rec.record)
	if err := p.grow(int64(m.HighWater)*int64(p.pageSize), opts); err != nil {
		return err
	}
	if err := p.flushUnsynced(opts.NoSync); err != nil {
		return err
	}
	runs := append(rec.pages, run{id: id, buffer: buffer{bytes: buf}})
	sortRuns(runs)
	if err := p.writeRuns(runs); err != nil {
		return err
	}
	return p.commitMeta(slot, m, rec, opts.NoSync)
}

// encodeFreelist writes the freelist page list: free pages, pending ones, and
// those of the record, which to bbolt are free.
func (p *Pager) encodeFreelist(buf []byte, list page.Extent, rec *record) {
	all := slices.AppendSeq(slices.Collect(p.space.Unused()), rec.runs())
	slices.SortFunc(all, func(a, b page.Extent) int { return cmp.Compare(a.Start, b.Start) })
	n := uint64(0)
	for _, e := range all {
		n += e.N
	}
	page.EncodeFreelist(buf, list.Start, uint32(list.N-1), n, slices.Values(all), !p.opts.NoSeals)
}
