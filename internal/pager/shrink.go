package pager

import (
	"slices"
	"time"

	"holdfast/internal/page"
)

// How the file becomes shorter. internal/vacuum moves what is at its end
// to the front, a transaction lowers the high-water mark to the page after the last that is
// not free, and when the pages from there on are not needed any more the file is cut off.
//
// A lower mark is a state as any other: the pages from it on were free, so none that
// is pinned has one of them. But what was recorded of free pages before may name
// them, so the transaction records all of them anew.
//
// The file stays as long as any state says that may be opened (both slots as they are
// on the disk, the durable one), read (held by readers, who may copy the file up to their
// mark), or written (prepared ones, those in flight, and the one in edit). What the
// slots say is on the disk when all that was written has been flushed: not while
// something is visible that is not durable. The models check that: test/model, truncation.

// maxCut is how much is cut off at a time, in bytes: who commits waits meanwhile, with
// ext4 some 2 ms, in proportion to it.
const maxCut = 8 << 20

// minFile is the size below which no file is cut: bbolt refuses a shorter one if
// one of its metas is torn.
const minFile = 4096

// maxShrink is how many flushes Shrink makes one after the other without a gain: some
// reader, or those who commit all the time, keep the end of the file then.
const maxShrink = 4

// PlaceLow makes all transactions take the first pages that are free, until it is
// called once more with false; otherwise they prefer longer runs. Calls nest.
func (p *Pager) PlaceLow(on bool) {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	if on {
		p.low++
	} else {
		p.low--
	}
}

// Lower makes the transaction lower the high-water mark to the page after the last
// that is not free when it is prepared, and record the free pages anew, as far at the
// front as there is room.
func (w *WriteTx) Lower() { w.lower = true }

// HighWater is the mark as the transaction has it now.
func (w *WriteTx) HighWater() page.ID {
	w.p.pipeline.Lock()
	defer w.p.pipeline.Unlock()
	return w.space.HighWater()
}

// Lowers tells whether Lower was called.
func (w *WriteTx) Lowers() bool { return w.lower }

// FreeCount is how many pages can be taken without raising the high-water mark.
func (w *WriteTx) FreeCount() uint64 {
	w.p.pipeline.Lock()
	defer w.p.pipeline.Unlock()
	return w.p.space.FreeCount()
}

// Reserve keeps the first n free pages that lie together, if they lie before a page, and
// tells whether there are such: neither Reserve nor Allocate gives them away until
// Unreserve.
func (w *WriteTx) Reserve(n uint64, before page.ID) bool {
	w.p.pipeline.Lock()
	defer w.p.pipeline.Unlock()
	id, ok := w.p.space.FindFree(n)
	if !ok || id >= before {
		return false
	}
	e := page.Extent{Start: id, N: n}
	if !w.space.Take(e) {
		return false
	}
	w.reserved = append(w.reserved, e)
	return true
}

// Unreserve gives up what was reserved. (Allocate then finds it, if it is asked for the
// same numbers of pages in the same order.)
func (w *WriteTx) Unreserve() error {
	w.p.pipeline.Lock()
	defer w.p.pipeline.Unlock()
	for _, e := range w.reserved {
		if err := w.space.Free(e); err != nil {
			return err
		}
	}
	w.reserved = w.reserved[:0]
	return nil
}

// Usage says how the pages of the file are used.
type Usage struct {
	HighWater     page.ID
	Free, Pending uint64 // pages
	Tail          uint64 // free pages directly before the high-water mark
	FileSize      int64
	// LastRecord is the page after the last one of a record of free pages, or of a freelist.
	LastRecord page.ID
	Oldest     Held
}

// Busy reports whether a transaction is being edited or committed.
func (p *Pager) Busy() bool {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	return p.editing != nil || p.pipeline.Busy()
}

// UnusedBits gives a bit for each page below the high-water mark, the lowest of a byte
// first: those of the pages that are free or pending are set. reserved are the runs
// that are in use and in no tree.
func (p *Pager) UnusedBits() (bits []byte, reserved []page.Extent, err error) {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	if p.space == nil || p.closed.Load() {
		return nil, nil, ErrDatabaseNotOpen
	}
	return p.space.AppendUnusedBits(nil), p.listsInUse(slices.Collect(p.record.Runs())), nil
}

// CheckUsed is damage if pages that a state reaches which the caller holds are free, or a part of a record
// of free pages: then what the file says of its free pages is wrong, and what is written to them is damage.
func (p *Pager) CheckUsed(runs []page.Extent) error {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	if p.foreign != nil { // which pages are free is known to its owner
		return nil
	}
	if p.space == nil || p.closed.Load() {
		return ErrDatabaseNotOpen
	}
	reserved := p.listsInUse(slices.Collect(p.record.Runs()))
	for _, e := range runs {
		if id, ok := p.space.AnyFree(e); ok {
			return page.Corruptf(id, "it is in use, and recorded as free")
		}
		for _, r := range reserved {
			if e.Start < r.End() && r.Start < e.End() {
				return page.Corruptf(max(e.Start, r.Start), "it is in use by a bucket, and by what is recorded of free pages")
			}
		}
	}
	return nil
}

// Held is the oldest state with a reader.
type Held struct {
	Tx    page.TxID
	Since time.Time // when it was superseded: it has been held since then at least; zero: the current one
	High  page.ID   // its high-water mark
	Age   uint64    // transactions committed since
}

// Usage tells how the file is used.
func (p *Pager) Usage() (Usage, error) {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	if p.foreign != nil && !p.closed.Load() { // as its owner had it when the newest transaction began
		return Usage{HighWater: p.foreign.high, Free: p.foreign.newest.FreePages, FileSize: p.fileSize}, nil
	}
	if p.space == nil || p.closed.Load() {
		return Usage{}, ErrDatabaseNotOpen
	}
	p.letForeignGo()
	p.states.SweepAll() // what readers have let go is free
	p.updateGauges()
	u := Usage{
		HighWater: p.space.HighWater(), Free: p.space.FreeCount(), Pending: p.space.PendingCount(),
		Tail: p.space.Tail(), FileSize: p.fileSize,
	}
	for e := range p.record.Runs() {
		u.LastRecord = max(u.LastRecord, e.End())
	}
	for _, l := range p.listsInUse(nil) {
		u.LastRecord = max(u.LastRecord, l.End())
	}
	u.Oldest = p.OldestReader()
	return u, nil
}

// OldestReader is the oldest state with a reader; zero if that is the current
// one. It waits for nothing.
func (p *Pager) OldestReader() Held {
	if p.foreign != nil { // its owner knows
		return Held{}
	}
	s, replaced := p.states.OldestHeld()
	current := p.states.Current()
	if s == nil || current == nil {
		return Held{}
	}
	return Held{Tx: s.Tx, Since: replaced, High: s.Meta.HighWater, Age: uint64(current.Tx - min(s.Tx, current.Tx))}
}

// Shrink cuts off what is from the high-water mark on, as far as it is not needed, and
// returns the file's size. First it makes both slots name the newest state, if
// they say that the file is longer. Those who commit meanwhile wait for one piece at a
// time; rest, if it is not nil, is called in between, and its error ends it. An error of the truncation
// itself leaves all as it was.
func (p *Pager) Shrink(rest func() error) (size int64, err error) {
	pieces := int64(-1) // that may be cut off: others may make the file longer meanwhile
	for tries := 0; ; tries++ {
		p.pipeline.Lock()
		if err := p.mayShrink(); err != nil {
			p.pipeline.Unlock()
			return 0, err
		}
		if size = p.fileSize; pieces < 0 {
			pieces = size/maxCut + 1
		}
		if own, _ := p.end(); own >= size || tries == maxShrink || pieces == 0 || p.cutLater && tries > 0 {
			p.pipeline.Unlock()
			return size, nil
		}
		if err := p.checkLength(); err != nil {
			p.pipeline.Unlock()
			return size, err
		}
		pr := p.barrier(true)
		pr.Even = true
		p.pipeline.Unlock()
		err := pr.Finish()
		for ; err == nil && pieces > 0 && p.cutPiece(); pieces-- {
			if tries = 0; rest != nil {
				err = rest()
			}
		}
		p.pipeline.Lock()
		if err == nil {
			err, p.cutFailed = p.cutFailed, nil
		}
		p.pipeline.Unlock()
		if err != nil {
			return size, err
		}
	}
}

// cutPiece cuts off a piece. It returns false if there is nothing to be cut off, or it is
// not the time: while Close waits for readers, it retires states.
func (p *Pager) cutPiece() bool {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	return !p.closed.Load() && p.truncate()
}

// cutClosed cuts off the file when it is not mapped any more, if Shrink wanted to. Close
// calls it, which has left metas of the newest state. The caller holds the pipeline's lock.
func (p *Pager) cutClosed() {
	_, need := p.end()
	if !p.cutLater || need >= p.fileSize || p.unsynced > 0 { // then the disk may have older metas
		return
	}
	if err := p.file.Truncate(need); err != nil {
		p.logf("cut %s off at %d bytes: %v", p.file.Name(), need, err)
	}
}

func (p *Pager) mayShrink() error {
	switch {
	case p.closed.Load():
		return ErrDatabaseNotOpen
	case p.opts.ReadOnly:
		return ErrDatabaseReadOnly
	}
	return p.stoppedBy()
}

// end is how many bytes of the file are needed: own without regard to readers and to
// what slots name, which is what Shrink can hope for, and all. The caller holds the pipeline's lock.
func (p *Pager) end() (own, all int64) {
	high := p.space.HighWater()
	for _, prs := range [3][]*Prepared{p.pipeline.Queue(), p.pipeline.InFlight(), p.aborted} {
		for _, pr := range prs {
			high = max(high, pr.state.Meta.HighWater)
		}
	}
	if p.editing != nil {
		high = max(high, p.editing.base.Meta.HighWater)
	}
	size := func(high page.ID) int64 {
		return max(int64(high)*int64(p.pageSize), minFile)
	}
	own = size(high)
	high = max(high, p.durable.Meta.HighWater)
	for slot := range p.slots.Meta {
		if p.slots.Err[slot] == nil {
			high = max(high, p.slots.Meta[slot].HighWater)
		}
	}
	p.letForeignGo()
	p.states.SweepAll()
	for s := range p.states.All() {
		high = max(high, s.Meta.HighWater)
	}
	return own, size(high)
}

// truncate cuts off a piece of what is not needed, and tells whether it did. A leader may
// write meanwhile: what it writes, and what its meta will say, lies before the end. The
// caller holds the pipeline's lock, without which nothing makes the file longer.
func (p *Pager) truncate() bool {
	if p.stoppedBy() != nil || p.unsynced > 0 || p.visible != nil {
		return false // what the slots say is not on the disk
	}
	_, need := p.end()
	if need >= p.fileSize {
		return false
	}
	if !p.file.MapBeyondEnd() { // then it can only be cut when it is not mapped
		p.cutLater = true
		return false
	}
	size := max(need, p.fileSize-maxCut)
	if err := p.file.Truncate(size); err != nil {
		p.cutFailed = err // for one of those in Shrink
		return false
	}
	p.fileSize = size
	return true
}
