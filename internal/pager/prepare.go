package pager

import (
	"errors"
	"maps"
	"runtime"
	"sort"
	"time"

	"holdfast/internal/commit"
	"holdfast/internal/page"
	"holdfast/internal/space"
	"holdfast/internal/vfs"
)

// WriteTx is the one transaction that may edit. It implements tree.Writer.
// It is for one goroutine.
type WriteTx struct {
	p     *Pager
	base  *State
	under State     // base, if on is not nil
	on    *Prepared // whose state base is, if it was not durable at the beginning
	space *space.Txn
	tx    page.TxID
	buf   *buffers
	// doomed is why it cannot commit: what it stands on has failed. By commit.
	doomed   error
	early    bool          // pages of it were written before it was prepared, see Stream
	stream   *Stream       // nil: there is none
	lanes    [2]lane       // of its pages, see place
	lower    bool          // see Lower
	asked    bool          // see wantsFreed
	reserved []page.Extent // see Reserve
	began    time.Time     // if writers are timed
	sum      page.Sum      // what was written of it before it was prepared, less what it has freed of what was written before it
	list     page.Extent   // see nameFreelist; N is 0 if its meta names none
	pr       Prepared      // what becomes of it
}

// BeginWrite waits for the writer lock and takes it, until Rollback or Prepare.
// The transaction stands on the newest one that is prepared.
func (p *Pager) BeginWrite() (*WriteTx, error) {
	if p.opts.ReadOnly {
		return nil, ErrDatabaseReadOnly
	}
	p.takeTurn()
	return p.begin()
}

// BeginDurable is BeginWrite, but the transaction stands on a durable state, which is the
// current one: it waits for what is prepared, with the writer lock, so that nothing comes
// between. mode is how the transaction is to be committed; with None, what was
// committed without a flush counts as durable.
func (p *Pager) BeginDurable(mode Durability) (*WriteTx, error) {
	if p.opts.ReadOnly {
		return nil, ErrDatabaseReadOnly
	}
	p.takeTurn()
	if err := p.makeDurable(mode); err != nil {
		p.writer.Unlock()
		return nil, err
	}
	return p.begin()
}

// makeDurable returns when no state is prepared that is not durable. The caller holds the writer lock.
func (p *Pager) makeDurable(mode Durability) error {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	for {
		_, on := p.newest()
		flush := on == nil && mode != None && (p.unsynced > 0 || p.visible != nil)
		switch {
		case p.closed.Load():
			return ErrDatabaseNotOpen
		case on == nil && !flush || p.stoppedBy() != nil:
			return p.stoppedBy()
		}
		if flush {
			_ = p.pipeline.FinishHeld(p.barrier(false))
		} else {
			_ = p.pipeline.WaitHeld(on) // whose failure is its own
		}
	}
}

// begin begins a transaction for the caller, who holds the writer lock.
func (p *Pager) begin() (w *WriteTx, err error) {
	p.pipeline.Lock()
	if err = ErrDatabaseNotOpen; !p.closed.Load() {
		w, err = p.beginWrite()
	}
	p.pipeline.Unlock()
	if err != nil {
		p.writer.Unlock()
		return nil, err
	}
	if p.opts.TimeWriters {
		w.began = time.Now()
	}
	return w, nil
}

// takeTurn takes the writer lock.
func (p *Pager) takeTurn() {
	if !p.writer.TryLock() {
		p.waitForTurn()
	}
}

// waitForTurn takes the writer lock after the writer that has it. The stack of a goroutine that waits
// here has the call with p in it, by which it is known.
//
//go:noinline
func (p *Pager) waitForTurn() {
	if p.opts.Waits != nil {
		defer p.opts.Waits()()
	}
	if p.opts.TimeWriters {
		began := time.Now()
		defer func() { p.counts.Busy.Add(int64(time.Since(began))) }()
	}
	p.writer.Lock()
	runtime.KeepAlive(p) // a stack shows it: what is not used again may be shown wrong
}

// longTurn is for how long a transaction is taken for a busy one: a commit of some hundred keys takes that.
const longTurn = 5 * time.Millisecond

// endTurn lets the next writer begin.
func (w *WriteTx) endTurn() {
	if !w.began.IsZero() {
		w.p.counts.Busy.Add(int64(min(time.Since(w.began), longTurn)))
	}
	w.p.writer.Unlock()
}

// beginWrite begins a transaction for the caller, which holds the writer lock and commit.
func (p *Pager) beginWrite() (*WriteTx, error) {
	if err := p.pipeline.WaitForRoom(); err != nil {
		return nil, err
	}
	if err := p.stoppedBy(); err != nil {
		return nil, err
	}
	p.letForeignGo()
	p.states.Sweep()
	base, on := p.newest()
	p.addToOverlay()
	tx := base.Tx + 1
	w := &WriteTx{p: p, base: base, on: on, tx: tx, space: p.space.Begin(tx), buf: p.buffers.take(), sum: page.Sum{Known: true}}
	if on != nil {
		// Of its own: the mapping with which that one was prepared may be older than
		// the newest, and go before this transaction ends.
		w.under = p.newState(*base)
		w.base = &w.under
	}
	p.editing = w
	return w, nil
}

// ID is the number that the transaction gets if it commits.
func (w *WriteTx) ID() page.TxID { return w.tx }

// Base is the state that the transaction began with. Its image shows pages of
// transactions that were not durable then only after WaitForBase.
func (w *WriteTx) Base() *State { return w.base }

// WaitForBase returns when what the transaction stands on is durable, so that
// its pages are in the file, or the error that kept it from becoming so.
func (w *WriteTx) WaitForBase() error {
	if w.on == nil {
		return nil
	}
	return w.p.pipeline.Wait(w.on)
}

// PageSize is the size of a page in bytes.
func (w *WriteTx) PageSize() int { return w.p.pageSize }

// Page returns page id of the state that the transaction began with, or one that it has
// taken from its Stream.
func (w *WriteTx) Page(id page.ID) (page.Page, error) {
	if w.stream != nil && w.space.Owns(id) {
		return w.stream.page(id)
	}
	if w.on != nil {
		if run := w.p.overlay[id]; run != nil {
			return page.Parse(run.bytes, id)
		}
	}
	return w.base.image.Page(id)
}

// Free gives up n pages of the base state, or of the transaction's own.
func (w *WriteTx) Free(id page.ID, n uint64) error {
	if err := w.discount(id, n); err != nil {
		return err
	}
	w.p.pipeline.Lock()
	defer w.p.pipeline.Unlock()
	e := page.Extent{Start: id, N: n}
	if w.stream != nil && w.space.Owns(id) && w.stream.own.free(w.buf, e) {
		return nil
	}
	return w.space.Free(e)
}

// Rollback ends the transaction without a trace. If what it stands on is not
// durable yet, it returns when that is, or the error that kept it from becoming
// so: no caller acts on what may vanish.
func (w *WriteTx) Rollback() error {
	if w.stream != nil {
		_ = w.stream.await() // it is not wanted any more
	}
	w.p.pipeline.Lock()
	w.abandon()
	w.p.pipeline.Unlock()
	w.endTurn()
	return w.WaitForBase()
}

// abandon undoes the transaction's use of space. The caller holds the pipeline's lock.
func (w *WriteTx) abandon() {
	p := w.p
	w.space.Rollback()
	w.space.Recycle()
	p.buffers.put(w.buf)
	if w.stream != nil {
		w.stream.end()
	}
	p.endEdit()
}

// endEdit is what waits until no transaction is in edit. The caller holds the pipeline's lock.
func (p *Pager) endEdit() {
	p.editing = nil
	p.undo()
	p.reap()
	p.updateGauges()
}

// CommitOptions say how a commit is made durable.
type CommitOptions struct {
	Mode      Durability
	AllocSize int64 // step in which a large file grows, in bytes
	MaxSize   int64 // of the file; 0: no limit
}

// Prepare ends the edit and releases the writer lock: root and sequence are those of the
// root bucket. All pages of the transaction have been allocated and filled. The
// next transaction can begin on top of this one, which becomes durable in
// Finish. On an error the transaction is rolled back.
func (w *WriteTx) Prepare(root page.ID, sequence uint64, opts CommitOptions) (*Prepared, error) {
	p := w.p
	if w.stream != nil {
		_ = w.stream.await() // its error is why prepare fails
	}
	p.pipeline.Lock()
	err := w.enqueue(root, sequence, opts)
	waits := isFull(err) && (p.held != nil || p.visible != nil)
	p.pipeline.Unlock()
	w.endTurn()
	if err == nil {
		return &w.pr, nil
	}
	if w.on != nil {
		if failed := p.pipeline.Wait(w.on); failed != nil {
			return nil, failed
		}
	}
	if waits {
		// What the last commits have freed waits for the next flush. A commit that tries
		// again, with less or after having removed something, is to find it free.
		_ = p.Sync()
	}
	return nil, err
}

// isFull tells whether err is that the file cannot be made longer.
func isFull(err error) bool { return vfs.IsFull(err) || errors.Is(err, ErrMaxSizeReached) }

// enqueue puts the transaction into the queue, or rolls it back. The caller holds the pipeline's lock.
func (w *WriteTx) enqueue(root page.ID, sequence uint64, opts CommitOptions) error {
	p := w.p
	if err := w.prepare(root, sequence, opts); err != nil {
		w.abandon()
		p.noRoom = p.noRoom || isFull(err)
		return err
	}
	if w.stream != nil {
		w.stream.end()
	}
	w.on, w.base, w.stream = nil, nil, nil // or each would keep all before it
	p.pipeline.Join(&w.pr)
	p.endEdit()
	return nil
}

// prepare makes the Prepared. If it fails the space's transaction is still in
// edit.
func (w *WriteTx) prepare(root page.ID, sequence uint64, opts CommitOptions) error {
	p, pr := w.p, &w.pr
	if err := w.mayPrepare(); err != nil {
		return err
	}
	if err := w.giveUp(); err != nil {
		return err
	}
	*pr = Prepared{
		Entry: commit.Entry{Number: w.tx, Mode: opts.Mode, Plain: w.list.N > 0},
		p:     p, w: w, before: p.record, list: w.list,
	}
	var rec commit.Recording
	recorder := p.recorder()
	if err := recorder.Plan(&p.record, w.space, &rec, w.lower); err != nil {
		return err
	}
	meta := w.base.Meta // for its page size and flags
	meta.Root, meta.Sequence = root, sequence
	meta.Freelist, meta.Label = page.NoFreelist, 0
	meta.HighWater = w.space.HighWater()
	if err := w.makeRoom(int64(meta.HighWater)*int64(p.pageSize), opts); err != nil {
		return err
	}
	pr.orphans, p.orphans = p.orphans, nil
	w.supersede()
	w.space.Commit()
	recorder.Complete(&rec)
	p.space.Pin(w.tx)
	p.last = [2]uint64{w.lanes[ofLeaves].pages, w.lanes[ofHot].pages}
	p.record = rec.Record
	pr.rec = rec.Record
	pr.state = p.newState(State{Tx: w.tx, Meta: meta})
	if w.list.N > 0 {
		rec.Write(w.list.Start, p.encodeFreelist(w.list, &rec.Record))
	}
	for _, r := range rec.Pages {
		w.buf.runs = append(w.buf.runs, run{id: r.ID, by: w.tx, record: true, buffer: buffer{bytes: r.Bytes}})
	}
	sortRuns(w.buf.runs)
	for i := range w.buf.runs {
		pr.Size += len(w.buf.runs[i].bytes)
	}
	return nil
}

// mayPrepare is why the transaction cannot commit, whatever it has done; nil if it can.
func (w *WriteTx) mayPrepare() error {
	if w.doomed != nil {
		return w.doomed
	}
	p := w.p
	if err := p.stoppedBy(); err != nil { // since the transaction began
		return err
	}
	if _, label := p.slots.Next(); label > page.MaxLabel-page.Label(2*len(p.pipeline.Queue())+4) || w.tx > page.TxID(page.MaxLabel) {
		return errLabelsUsedUp(0)
	}
	return nil
}

// giveUp frees what no slot names any more, and what waits for the end of the edit.
func (w *WriteTx) giveUp() error {
	if w.stream != nil {
		if err := w.stream.free(); err != nil {
			return err
		}
		w.stream.own.drop(w.buf)
	}
	for _, list := range w.p.orphans {
		if err := w.space.Free(list); err != nil {
			return err
		}
	}
	if w.lower {
		w.space.Lower()
	}
	return nil
}

// makeRoom makes the file long enough, after a look whether it is as long as it was left. Of
// those that are written as a group the first one looks, and of those that do not wait for a
// flush one in some; the one that flushes them does. One that makes the file longer, or may
// write its last page, always does: nothing could tell after that.
func (w *WriteTx) makeRoom(need int64, opts CommitOptions) error {
	p := w.p
	first := len(p.pipeline.Queue()) == 0
	if first && (opts.Mode == Full || w.tx%lengthChecks == 0) || need > p.fileSize-int64(p.pageSize) {
		if err := p.checkLength(); err != nil {
			return err
		}
	}
	return p.grow(need, opts)
}

// addToOverlay puts the page runs of prepared transactions into the overlay, in which
// the next transaction looks before the mapping. The caller holds the pipeline's lock, and
// no transaction is in edit.
func (p *Pager) addToOverlay() {
	all := [2][]*Prepared{p.pipeline.InFlight(), p.pipeline.Queue()}
	for _, prs := range all {
		for _, pr := range prs {
			if pr.inOverlay {
				continue
			}
			pr.inOverlay = true
			if p.overlay == nil {
				p.overlay = make(map[page.ID]*run)
			}
			for i := range pr.w.buf.runs {
				r := &pr.w.buf.runs[i]
				p.overlay[r.id] = r
			}
			p.overlayPeak = max(p.overlayPeak, len(p.overlay))
		}
	}
}

// supersede marks the page runs of prepared transactions that this one has freed:
// a group that holds both does not write them. The caller holds the pipeline's lock.
func (w *WriteTx) supersede() {
	overlay := w.p.overlay
	if w.on == nil || len(overlay) == 0 {
		return
	}
	freed := w.space.Freed()
	published := w.p.states.Current().Tx
	pages := uint64(0)
	for _, e := range freed {
		pages += e.N
	}
	if pages <= uint64(len(overlay)) {
		for _, e := range freed {
			for id := e.Start; id < e.End(); id++ {
				if r := overlay[id]; r != nil {
					w.take(r, published)
				}
			}
		}
		return
	}
	for id, r := range overlay {
		at := sort.Search(len(freed), func(i int) bool { return freed[i].End() > id })
		if at < len(freed) && freed[at].Start <= id {
			w.take(r, published)
		}
	}
}

// reap takes transactions that have ended off the overlay, and their buffers back. The
// caller holds the pipeline's lock, and no transaction is in edit.
func (p *Pager) reap() {
	for i, pr := range p.ended {
		if pr.inOverlay {
			for j := range pr.w.buf.runs {
				if r := &pr.w.buf.runs[j]; p.overlay[r.id] == r {
					delete(p.overlay, r.id)
				}
			}
		}
		p.buffers.put(pr.w.buf)
		pr.w.buf = nil
		p.ended[i] = nil
	}
	p.ended = p.ended[:0]
	p.trimOverlay()
}

// maxIdleOverlay is up to how many runs an overlay may have held that is kept.
const maxIdleOverlay = 1024

// trimOverlay makes the overlay anew if it has held many more runs than it does: going through
// it, which some commits do, takes as long as if it still did.
func (p *Pager) trimOverlay() {
	n := len(p.overlay)
	if p.overlayPeak <= maxIdleOverlay || p.overlayPeak/8 < n {
		return
	}
	overlay := make(map[page.ID]*run, n)
	maps.Copy(overlay, p.overlay)
	p.overlay, p.overlayPeak = overlay, n
}
