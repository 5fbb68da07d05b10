package pager

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast/internal/page"
	"holdfast/internal/plant"
	"holdfast/internal/space"
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
// unless that would be long for what was written, so that bbolt need not scan the
// file when it opens it, and closes the file. A second Close does nothing.
func (p *Pager) Close(opts CloseOptions) error {
	p.takeTurn()
	defer p.turn.Unlock()
	p.commit.Lock()
	if p.closed.Swap(true) {
		p.commit.Unlock()
		return nil
	}
	for _, timer := range []*time.Timer{p.settling, p.flusher} {
		if timer != nil {
			timer.Stop()
		}
	}
	for p.leading || len(p.queue)+len(p.barriers) > 0 {
		p.idle.Wait()
	}
	last := *p.states.Current()
	wait := p.states.Close()
	p.draining = true
	p.commit.Unlock()
	wait()
	p.commit.Lock()
	defer p.commit.Unlock()
	var errs []error
	left := false
	if !p.opts.ReadOnly && p.stoppedBy() == nil {
		err := p.leave(last, opts)
		left = err == nil
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
	if left && p.stoppedBy() == nil {
		p.cutClosed()
	}
	if p.stoppedBy() != nil && !plant.On(plant.CloseNoDrop) {
		p.forget()
	}
	if !p.opts.ReadOnly {
		errs = append(errs, p.file.Unlock())
	}
	errs = append(errs, p.file.Close())
	return errors.Join(errs...)
}

// leave makes the file one that bbolt opens as we would: the newest meta is plain,
// and names a freelist page unless that is not wanted. last is the current state.
func (p *Pager) leave(last State, opts CloseOptions) error {
	best, err := p.slots.Best()
	if err != nil {
		return err
	}
	opts.NoFreelist = opts.NoFreelist || !p.affordsFreelist()
	listed := p.slots.Meta[best].Freelist != page.NoFreelist
	inUse := p.inUse[best] && !p.opts.SettleOnly
	if !p.trailing && p.visible == nil && (listed || opts.NoFreelist && !inUse) {
		return p.evenOut(best, p.slots.Meta[best])
	}
	if err := p.checkLength(); err != nil {
		return err
	}
	if p.visible != nil {
		if err := p.flush(); err != nil {
			return err
		}
		slot, _ := p.slots.Next()
		p.overwritten(slot, *p.visible, true)
		p.holdDurable(last, true)
	}
	mode := Full
	if opts.Commit.Mode == None && p.unsynced > 0 { // else all is durable, and is to stay so
		mode = None
	}
	g := &group{p: p, state: p.durable, rec: p.recorded, sum: p.sum, mode: mode, settles: p.trailing}
	p.leaving = true // from here on no meta page says that the file is in use
	if !opts.NoFreelist {
		err := p.leaveFreelist(g, last.Tx+1, opts.Commit)
		if err == nil || errors.Is(err, ErrStopped) || !p.trailing && !inUse {
			return err
		}
		p.logf("close %s without a freelist page: %v", p.file.Name(), err)
		g = &group{p: p, state: p.durable, rec: p.recorded, sum: p.sum, mode: mode, settles: p.trailing}
	}
	g.slot, g.label = p.slots.Next()
	g.lists = p.listsInUse(nil)
	if err := p.flushBefore(g); err != nil {
		return err
	}
	if err := g.writePlain(); err != nil {
		return err
	}
	return g.evenOut()
}

// maxCloseList is how long a freelist may be that Close writes whatever was written before, in
// bytes.
const maxCloseList = 64 << 10

// affordsFreelist tells whether Close is to write a freelist: not a long one of the whole file
// after a session that has written less than that (docs/decisions/005-freelist-at-close.md).
func (p *Pager) affordsFreelist() bool {
	n := p.space.FreeCount() + p.space.PendingCount()
	for e := range p.record.runs() {
		n += e.N
	}
	size := page.FreelistSize(n)
	return size <= maxCloseList || size <= uint64(p.counts.BytesWritten.Load()) || plant.On(plant.CloseListsAll)
}

// leaveFreelist commits a state that differs from the current one in naming a
// freelist page.
func (p *Pager) leaveFreelist(g *group, tx page.TxID, opts CommitOptions) error {
	if g.slot, g.label = p.slots.Next(); g.label > page.MaxLabel || tx > page.TxID(page.MaxLabel) {
		return page.Corruptf(page.ID(g.slot), "transaction ids are used up")
	}
	txn := p.space.Begin(tx)
	list, rec, err := p.planFreelist(txn, g.slot)
	if err == nil {
		g.state.Tx, g.state.Meta.HighWater = tx, txn.HighWater()
		err = p.grow(int64(txn.HighWater())*int64(p.pageSize), opts)
	}
	if err != nil {
		txn.Rollback()
		return err
	}
	txn.Commit()
	p.complete(rec)
	g.rec, g.lists = rec.record, []page.Extent{list}
	if other := p.lists[1-g.slot]; other.N > 0 {
		g.lists = append(g.lists, other)
	}
	buf := make([]byte, list.N*uint64(p.pageSize))
	p.encodeFreelist(buf, list, &rec.record)
	runs := append(rec.pages, run{id: list.Start, buffer: buffer{bytes: buf}})
	sortRuns(runs)
	if err := p.flushBefore(g); err != nil {
		return err
	}
	if _, err := p.writeRuns(runs); err != nil {
		return err
	}
	if g.mode == Full && !plant.On(plant.CloseNoFlush) {
		if err := p.flush(); err != nil {
			return err
		}
	}
	g.list = list.Start
	if err := g.writePlain(); err != nil {
		return err
	}
	return g.evenOut()
}

// flushBefore flushes what NoSync has left unflushed before a group writes that is to be durable: its meta page
// takes the place of the last that is.
func (p *Pager) flushBefore(g *group) error {
	if g.mode != Full || p.unsynced == 0 || plant.On(plant.NoFlushAfterNoSync) {
		return nil
	}
	return p.flush()
}

// planFreelist takes pages for a freelist page, and for the record with it, and
// gives up the freelist that the slot to be written names: no transaction takes a page any
// more before it is written.
func (p *Pager) planFreelist(txn *space.Txn, slot int) (list page.Extent, rec *recording, err error) {
	pages := uint64(0)
	old := slices.Clone(p.orphans)
	if l := p.lists[slot]; l.N > 0 && l != p.lists[1-slot] {
		old = append(old, l)
	}
	for _, l := range old {
		if err := txn.Free(l); err != nil {
			return list, nil, err
		}
		pages += l.N
	}
	pages += p.space.FreeCount() + p.space.PendingCount()
	ps := uint64(p.pageSize)
	highWater := txn.HighWater()
	for range 2 { // the list may raise the mark by its own pages, and the record is longer then
		list.N = (page.FreelistSize(pages+p.recordPages(highWater)) + ps - 1) / ps
		highWater = txn.HighWater() + page.ID(2*list.N)
	}
	if list.Start, err = txn.Allocate(list.N); err != nil {
		return list, nil, err
	}
	rec = new(recording)
	return list, rec, p.plan(txn, rec, false)
}

// evenOut writes over a trailing meta that is not the newest any more: the other
// slot than the newest gets the newest meta too, under the label before it, and no
// extension. It needs no flush: until it is on the disk, and if it never is, the
// newest slot counts. A closed file has nothing random in it then.
func (p *Pager) evenOut(newest int, m page.Meta) error {
	named := p.inUse[1-newest] && !p.opts.SettleOnly && p.counts.Writes.Load() > 0
	if !p.random[1-newest] && !named || m.Label == 0 || p.unsynced > 0 {
		return nil
	}
	m.Label--
	return p.putMeta(1-newest, m, nil)
}

func (g *group) evenOut() error {
	if g.mode != Full { // the newest one is not flushed
		return nil
	}
	return g.p.evenOut(g.slot, g.meta)
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
