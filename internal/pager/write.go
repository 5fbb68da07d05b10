package pager

import (
	"fmt"

	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/plant"
	"holdfast/internal/space"
	"holdfast/internal/vfs"
)

// WriteTx is the one transaction that may edit. It implements tree.Writer.
// It is for one goroutine.
type WriteTx struct {
	p     *Pager
	base  *State
	over  overlay // prepared and not in the file yet
	space *space.Txn
	tx    page.TxID
	buf   *buffers
}

// BeginWrite waits for the writer's turn and takes it, until Rollback or Finish.
func (p *Pager) BeginWrite() (*WriteTx, error) {
	if p.opts.ReadOnly {
		return nil, ErrDatabaseReadOnly
	}
	p.turn.Lock()
	if p.closed.Load() {
		p.turn.Unlock()
		return nil, ErrDatabaseNotOpen
	}
	p.commit.Lock()
	defer p.commit.Unlock()
	if err := p.stoppedBy(); err != nil {
		p.turn.Unlock()
		return nil, err
	}
	p.states.Sweep()
	base := p.states.Current()
	tx := base.Tx + 1
	// The turn is kept until Finish, so nothing is prepared and unwritten here.
	p.editing = p.newWriteTx(base, nil, tx)
	return p.editing, nil
}

func (p *Pager) newWriteTx(base *State, over overlay, tx page.TxID) *WriteTx {
	return &WriteTx{p: p, base: base, over: over, tx: tx, space: p.space.Begin(tx), buf: p.buffers.take()}
}

// ID is the number that the transaction gets if it commits.
func (w *WriteTx) ID() page.TxID { return w.tx }

// Base is the state that the transaction began with.
func (w *WriteTx) Base() *State { return w.base }

// PageSize is the size of a page in bytes.
func (w *WriteTx) PageSize() int { return w.p.pageSize }

// Page returns page id of the state that the transaction began with.
func (w *WriteTx) Page(id page.ID) (page.Page, error) {
	if len(w.over) > 0 {
		if run := w.over.find(id); run != nil {
			return page.Parse(run, id)
		}
	}
	return w.base.image.Page(id)
}

// Allocate reserves n pages and the buffer that is written to them.
func (w *WriteTx) Allocate(n uint64) (page.ID, []byte, error) {
	w.p.commit.Lock()
	id, err := w.space.Allocate(n)
	w.p.commit.Unlock()
	if err != nil {
		return 0, nil, err
	}
	buf := w.p.buffers.get(w.buf, n)
	w.buf.runs = append(w.buf.runs, run{id: id, buffer: buf})
	return id, buf.bytes, nil
}

// Free gives up n pages of the base state.
func (w *WriteTx) Free(id page.ID, n uint64) error {
	w.p.commit.Lock()
	defer w.p.commit.Unlock()
	e := page.Extent{Start: id, N: n}
	if plant.On(plant.FreedTwice) {
		_ = w.space.Free(e)
	}
	return w.space.Free(e)
}

// Rollback ends the transaction without a trace.
func (w *WriteTx) Rollback() {
	w.p.commit.Lock()
	w.abandon()
	w.p.commit.Unlock()
	w.p.turn.Unlock()
}

// abandon undoes the transaction's use of space. The caller holds commit.
func (w *WriteTx) abandon() {
	w.space.Rollback()
	w.end()
}

// end lets go of what the transaction used. The caller holds commit.
func (w *WriteTx) end() {
	w.space.Recycle()
	w.p.buffers.put(w.buf)
	w.p.editing = nil
	w.p.updateGauges()
}

// CommitOptions say how a commit is made durable.
type CommitOptions struct {
	NoSync    bool
	AllocSize int64 // step in which a large file grows, in bytes
	MaxSize   int64 // of the file; 0: no limit
}

// Prepared is a transaction that is complete and not durable yet.
type Prepared struct {
	w    *WriteTx
	opts CommitOptions
	meta page.Meta
	rec  *recording
	slot int
}

// Prepare ends the edit: root and sequence are those of the root bucket. All
// pages of the transaction have been allocated and filled. On an error the
// transaction is rolled back.
func (w *WriteTx) Prepare(root page.ID, sequence uint64, opts CommitOptions) (*Prepared, error) {
	p := w.p
	p.commit.Lock()
	pr, err := w.prepare(root, sequence, opts)
	if err != nil {
		w.abandon()
		p.commit.Unlock()
		p.turn.Unlock()
		return nil, err
	}
	return pr, nil
}

func (w *WriteTx) prepare(root page.ID, sequence uint64, opts CommitOptions) (*Prepared, error) {
	p := w.p
	if err := p.stoppedBy(); err != nil { // since the transaction began
		return nil, err
	}
	pr := &Prepared{w: w, opts: opts}
	var label page.Label
	if pr.slot, label = p.slots.Next(); label > page.MaxLabel {
		return nil, page.Corruptf(page.ID(pr.slot), "transaction ids are used up")
	}
	if list := p.lists[pr.slot]; list.N > 0 {
		// The slot that names this freelist is overwritten: from then on nobody
		// needs its pages.
		if err := w.space.Free(list); err != nil {
			return nil, err
		}
	}
	var err error
	if pr.rec, err = p.plan(w.space); err != nil {
		return nil, err
	}
	pr.meta = page.Meta{
		PageSize:  uint32(p.pageSize),
		Flags:     w.base.Meta.Flags,
		Root:      root,
		Sequence:  sequence,
		Freelist:  page.NoFreelist,
		HighWater: w.space.HighWater(),
		Label:     label,
	}
	if plant.On(plant.HighWaterStays) {
		pr.meta.HighWater = w.base.Meta.HighWater
	}
	w.space.Commit()
	p.complete(pr.rec, w.tx, pr.slot, page.Extent{})
	w.buf.runs = append(w.buf.runs, pr.rec.pages...)
	sortRuns(w.buf.runs)
	return pr, nil
}

// Finish makes the transaction durable and visible, and gives up the turn. If
// it fails the transaction has not happened; if it failed in a flush, or in
// writing the meta, nothing more is written until the file is opened again.
func (pr *Prepared) Finish() error {
	w, p := pr.w, pr.w.p
	defer p.turn.Unlock()
	defer p.commit.Unlock()
	err := pr.finish()
	if err != nil {
		w.abandon()
		return err
	}
	w.end()
	return nil
}

func (pr *Prepared) finish() error {
	w, p := pr.w, pr.w.p
	if err := p.checkLength(); err != nil {
		return err
	}
	if err := p.grow(int64(pr.meta.HighWater)*int64(p.pageSize), pr.opts); err != nil {
		return err
	}
	if err := p.flushUnsynced(pr.opts.NoSync); err != nil {
		return err
	}
	if err := p.writeRuns(w.buf.runs); err != nil {
		return err
	}
	if err := p.commitMeta(pr.slot, pr.meta, pr.rec, pr.opts.NoSync); err != nil {
		return err
	}
	p.lists[pr.slot] = page.Extent{}
	p.publish(w.tx, pr.meta)
	return nil
}

// checkLength stops the writer if the file is shorter than we left it. A commit
// would acknowledge what stands on pages that are no more.
func (p *Pager) checkLength() error {
	size, err := p.file.Size()
	if err != nil {
		return err
	}
	if size < p.fileSize && !plant.On(plant.LengthUnchecked) {
		return p.stop(fmt.Errorf("somebody shortened the file to %d bytes while it was open, from %d", size, p.fileSize))
	}
	return nil
}

// checkLengthUnlocked is checkLength for who does not hold commit.
func (p *Pager) checkLengthUnlocked() error {
	p.commit.Lock()
	defer p.commit.Unlock()
	if p.closed.Load() {
		return ErrDatabaseNotOpen
	}
	return p.checkLength()
}

// publish makes the state that meta describes current.
func (p *Pager) publish(tx page.TxID, meta page.Meta) {
	p.space.Pin(tx)
	p.gen.states++
	p.states.Publish(p.newState(tx, meta))
	p.states.Sweep()
}

// flushUnsynced comes before the first page of a commit that is to be durable
// after some that were not: those may have given pages away that the newest
// durable state uses, so they must be durable before these pages are written.
func (p *Pager) flushUnsynced(noSync bool) error {
	if noSync || p.unsynced.Load() == 0 || plant.On(plant.NoFlushAfterNoSync) {
		return nil
	}
	return p.flush()
}

// commitMeta makes what was written before durable, then the meta. A failure
// leaves it open what the disk holds, so it stops the writer.
func (p *Pager) commitMeta(slot int, m page.Meta, rec *recording, noSync bool) error {
	if !noSync && !plant.On(plant.NoFlushBeforeMeta) && !(plant.On(plant.CloseNoFlush) && m.Freelist != page.NoFreelist) {
		if err := p.flush(); err != nil {
			return err
		}
	}
	if plant.On(plant.WrongSlot) {
		slot = 1 - slot
	}
	if p.metaPage == nil {
		p.metaPage = make([]byte, p.pageSize)
	}
	buf := p.metaPage
	page.EncodeMeta(buf, page.ID(slot), m, nil)
	if rec.hasher != nil {
		if err := extension.Encode(buf, &rec.ext, rec.hasher); err != nil {
			return p.stop(err)
		}
	}
	if _, err := p.file.WriteAt(buf, int64(slot)*int64(p.pageSize)); err != nil && !plant.On(plant.MetaErrorSwallowed) {
		return p.stop(err)
	}
	p.counts.Writes.Add(1)
	p.counts.BytesWritten.Add(int64(len(buf)))
	if !noSync && !plant.On(plant.NoFlushAfterMeta) {
		if err := p.flush(); err != nil {
			return err
		}
	}
	if noSync {
		p.unsynced.Add(1)
	} else {
		p.unsynced.Store(0)
	}
	p.slots.Meta[slot], p.slots.Err[slot] = m, nil
	p.record = rec.record
	return nil
}

// writeRuns writes page runs, which are in file order, neighbours in one call.
func (p *Pager) writeRuns(runs []run) error {
	ps := page.ID(p.pageSize)
	for from := 0; from < len(runs); {
		vec := p.vec[:0]
		next := runs[from].id
		to := from
		for ; to < len(runs) && runs[to].id == next; to++ {
			r := &runs[to]
			if to > from && r.follows(&runs[to-1].buffer) {
				last := len(vec) - 1
				vec[last] = vec[last][:len(vec[last])+len(r.bytes)]
			} else {
				vec = append(vec, r.bytes)
			}
			next += page.ID(len(r.bytes)) / ps
		}
		err := p.file.WriteVec(vec, int64(runs[from].id)*int64(ps))
		clear(vec)
		p.vec = vec
		if err != nil && !plant.On(plant.WriteErrorSwallowed) {
			return err
		}
		p.counts.Writes.Add(1)
		p.counts.BytesWritten.Add(int64(next-runs[from].id) * int64(ps))
		from = to
	}
	return nil
}

// minFileSize is the size to which the first growth takes a file, in bytes.
const minFileSize = 32 << 10

// grow makes the file at least need bytes long. It grows in steps, as bbolt
// does: powers of two up to AllocSize, AllocSize more than needed from there on.
func (p *Pager) grow(need int64, opts CommitOptions) error {
	if need > p.fileSize && !plant.On(plant.NotGrown) {
		size := int64(minFileSize)
		if need <= opts.AllocSize {
			for size < need {
				size *= 2
			}
		} else {
			size = need + opts.AllocSize
		}
		if opts.MaxSize > 0 && size > opts.MaxSize {
			return ErrMaxSizeReached
		}
		size, err := p.growTo(size, need)
		if err != nil {
			return err
		}
		p.fileSize = size
	}
	return p.remap(need)
}

// growTo makes the file size bytes long, or shorter, down to need bytes, if the
// disk has no room for more, and returns its size.
func (p *Pager) growTo(size, need int64) (int64, error) {
	for {
		err := p.file.Grow(size)
		if err == nil {
			return size, nil
		}
		if size == need || !vfs.IsFull(err) {
			return 0, err
		}
		extra := (size - need) / 2
		if extra < minFileSize {
			extra = 0
		}
		size = need + extra/int64(p.pageSize)*int64(p.pageSize)
	}
}
