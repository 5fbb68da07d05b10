package pager

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast/internal/commit"
	"holdfast/internal/page"
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

// Close waits for the writer and all snapshots and closes the file. Before, it leaves a
// freelist page, so that bbolt need not scan the file when it opens it, unless nothing was
// written or the list would be long for what was. A second Close does nothing. Nothing is
// logged once Close has returned.
func (p *Pager) Close(opts CloseOptions) error {
	if p.foreign != nil {
		return p.closeForeign()
	}
	defer p.byTimer.Wait() // without a lock: what logs may write to this database
	p.takeTurn()
	defer p.writer.Unlock()
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	if p.closed.Swap(true) {
		return nil
	}
	for _, timer := range []*time.Timer{p.plainTimer, p.flusher} {
		if timer != nil {
			timer.Stop()
		}
	}
	p.pipeline.WaitIdle()
	var errs []error
	left := false
	if !p.opts.ReadOnly && p.stoppedBy() == nil {
		err := p.leave(opts)
		left = err == nil
		switch {
		case errors.Is(err, ErrStopped):
			errs = append(errs, err)
		case err != nil: // a full disk, say: the next to open the file scans it
			p.logf("close %s without a freelist page: %v", p.file.Name(), err)
		}
	}
	ended := p.unshare() // no process waits for readers of another one
	wait := p.states.Close()
	p.draining = true
	p.pipeline.Unlock()
	wait()
	p.pipeline.Lock()
	errs = append(errs, ended)
	if p.gen != nil {
		errs = append(errs, p.gen.mapping.Close())
		p.gen = nil
	}
	if left && p.stoppedBy() == nil {
		p.cutClosed()
	}
	if p.stoppedBy() != nil {
		p.forget()
	}
	if !p.opts.ReadOnly {
		errs = append(errs, p.file.Unlock())
	}
	errs = append(errs, p.file.Close())
	return errors.Join(errs...)
}

// LeaveFreelist has Close leave a freelist page though nothing was written.
func (p *Pager) LeaveFreelist() {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	p.leaveList = true
}

// leave makes the file one that bbolt opens as we would: the newest meta is plain, and
// names a freelist page unless that is not wanted. The caller holds the pipeline's lock, which is given
// up meanwhile.
func (p *Pager) leave(opts CloseOptions) error {
	best, err := p.slots.Best()
	if err != nil {
		return err
	}
	// A file of which nothing was written is left as it was, for one because it may be damaged.
	noFreelist := opts.NoFreelist || p.counts.Writes.Load() == 0 && !p.leaveList || !p.affordsFreelist()
	listed := p.slots.Meta[best].Freelist != page.NoFreelist
	inUse := p.inUse[best] && !p.opts.SettleOnly
	if p.trailing || p.visible != nil || !listed && (inUse || !noFreelist) {
		if err := p.commitLast(noFreelist, inUse, opts.Commit); err != nil {
			return err
		}
	}
	if best, err = p.slots.Best(); err != nil {
		return err
	}
	return p.evenOut(best, p.slots.Meta[best])
}

// commitLast commits once more, so that the newest meta names a freelist page. With
// noFreelist, or where that fails, it writes a plain meta of the newest state, as Sync does, if
// the newest meta is not one, or says that the file is in use.
func (p *Pager) commitLast(noFreelist, inUse bool, opts CommitOptions) error {
	if err := p.checkLength(); err != nil {
		return err
	}
	if p.visible != nil {
		if err := p.pipeline.FinishHeld(p.barrier(false)); err != nil {
			return err
		}
	}
	if opts.Mode != None || p.unsynced == 0 { // else all is durable, and is to stay so
		opts.Mode = Full
	}
	p.leaving = true // from here on no meta page says that the file is in use
	if !noFreelist {
		err := p.commitFreelist(opts)
		if err == nil || errors.Is(err, ErrStopped) || !p.trailing && !inUse {
			return err
		}
		p.logf("close %s without a freelist page: %v", p.file.Name(), err)
	}
	pr := p.barrier(true)
	pr.Mode, pr.Anew = opts.Mode, true
	return p.pipeline.FinishHeld(pr)
}

// maxCloseList is how long a freelist may be that Close writes whatever was written before, in
// bytes.
const maxCloseList = 64 << 10

// affordsFreelist tells whether Close is to write a freelist: not a long one of the whole file
// after a session that has written less than that (docs/decisions/005-freelist-at-close.md).
func (p *Pager) affordsFreelist() bool {
	n := p.space.FreeCount() + p.space.PendingCount()
	for e := range p.record.Runs() {
		n += e.N
	}
	size := page.FreelistSize(n)
	return size <= maxCloseList || size <= uint64(p.counts.BytesWritten.Load())
}

// commitFreelist commits a transaction that changes nothing but that its meta names a
// freelist page. The caller holds the writer lock and commit, which is given up meanwhile.
func (p *Pager) commitFreelist(opts CommitOptions) error {
	w, err := p.beginWrite()
	if err != nil {
		return err
	}
	if err := w.nameFreelist(); err != nil {
		w.abandon()
		return err
	}
	if err := w.enqueue(w.base.Meta.Root, w.base.Meta.Sequence, opts); err != nil {
		return err
	}
	return p.pipeline.FinishHeld(&w.pr)
}

// nameFreelist makes the transaction's meta name a freelist page, and takes the pages of that,
// which is encoded when all else is known. The freelist that the slot to be written names is
// given up: no transaction takes a page any more before it is written. The caller holds the pipeline's lock.
func (w *WriteTx) nameFreelist() (err error) {
	p := w.p
	slot, _ := p.slots.Next()
	p.unlist(slot)
	pages := p.space.FreeCount() + p.space.PendingCount()
	for _, l := range p.orphans {
		pages += l.N
	}
	ps := uint64(p.pageSize)
	highWater := w.space.HighWater()
	for range 2 { // the list may raise the mark by its own pages, and the record is longer then
		w.list.N = (page.FreelistSize(pages+p.recorder().MaxPages(&p.record, highWater)) + ps - 1) / ps
		highWater = w.space.HighWater() + page.ID(2*w.list.N)
	}
	w.list.Start, err = w.space.Allocate(w.list.N)
	return err
}

// encodeFreelist makes the freelist page list: free pages, pending ones, and
// those of the record, which to bbolt are free.
func (p *Pager) encodeFreelist(list page.Extent, rec *commit.Record) []byte {
	all := slices.AppendSeq(slices.Collect(p.space.Unused()), rec.Runs())
	slices.SortFunc(all, func(a, b page.Extent) int { return cmp.Compare(a.Start, b.Start) })
	n := uint64(0)
	for _, e := range all {
		n += e.N
	}
	buf := make([]byte, list.N*uint64(p.pageSize))
	page.EncodeFreelist(buf, list.Start, uint32(list.N-1), n, slices.Values(all), !p.opts.NoSeals)
	return buf
}

// evenOut writes over a trailing meta that is not the newest any more: the other
// slot than the newest gets the newest meta too, under the label before it, and no
// extension. It needs no flush: until it is on the disk, and if it never is, the
// newest slot counts. A closed file has nothing random in it then.
func (p *Pager) evenOut(newest int, m page.Meta) error {
	other := 1 - newest
	named := p.inUse[other] && !p.opts.SettleOnly && p.counts.Writes.Load() > 0
	if !p.random[other] && !named || m.Label == 0 || p.unsynced > 0 { // the newest one is not flushed
		return nil
	}
	m.Label--
	return p.putMeta(other, m, nil)
}
