package pager

import (
	"slices"

	"holdfast/internal/commit"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// What becomes of transactions that are prepared. The protocol, internal/commit, tells when. All of
// it is guarded by commit.
//
//	Published ──────────────────────────────────────▸ ended ──reap──▸ buffers for others
//	Failed ──▸ aborted ──undo (when none is in edit)────▴

// Prepared is a transaction that is complete and not durable yet, or a barrier,
// which is a request that everything be durable.
type Prepared struct {
	commit.Entry
	p     *Pager
	w     *WriteTx    // nil of a barrier
	list  page.Extent // the freelist that its meta names; N is 0 if it names none
	state State

	rec     commit.Record // of the free pages, with its own change
	before  commit.Record // without
	orphans []page.Extent // that it has freed

	inOverlay bool
}

// Durability is when a commit returns.
type Durability = commit.Durability

// From the most careful on.
const (
	Full     = commit.Full
	Periodic = commit.Periodic
	None     = commit.None
)

// Finish returns when the transaction is durable and visible. If it fails the
// transaction has not happened; if it failed in a flush, or in writing the meta other
// than for want of room, nothing more is written until the file is opened again.
func (pr *Prepared) Finish() error { return pr.p.pipeline.Finish(pr) }

// newest is the state on which the next transaction stands, and the Prepared that
// it is of; nil if it is the current one. The caller holds the pipeline's lock.
func (p *Pager) newest() (*State, *Prepared) {
	if pr, ok := p.pipeline.Newest(); ok {
		return &pr.state, pr
	}
	return p.states.Current(), nil
}

// Idle is told that there is no leader any more.
func (e env) Idle() { e.p.plainLater() }

// Published makes a group that was written current.
func (e env) Published(g *commit.Group[*Prepared]) {
	p, w := e.p, &e.p.group
	w.state.Sum = w.sum
	switch {
	case g.Mode == Periodic:
		meta := w.meta
		p.visible, p.recorded, p.unsynced = &meta, w.rec, 0
		p.flushLater()
	case g.WroteMeta:
		p.absorb(g)
		p.overwritten(g.Slot, w.meta, g.Names)
		p.lists[g.Slot] = w.list
		p.holdDurable(w.state, g.Names)
		p.recorded = w.rec
	case g.Visible: // and now it is durable
		p.overwritten(g.Slot, *p.visible, true)
		p.holdDurable(w.state, true)
	}
	switch g.Mode {
	case Full:
		p.unsynced = 0
	case None:
		p.unsynced += int64(len(g.Members))
	}
	if n := len(g.Members); n > 0 {
		p.plainFailed = false
		for _, pr := range g.Members[:n-1] {
			p.space.Unpin(pr.state.Tx)
		}
		// The pin of the last one is that of the state from now on.
		p.discountLater(g.Members)
		p.sum = w.sum
		p.publish(w.state)
		p.states.Sweep()
		p.counts.Commits.Add(int64(n))
		p.counts.Groups.Add(1)
	}
	if len(g.Members) == 0 {
		p.tellDurable()
	}
	for _, pr := range g.Members {
		pr.w.space.Recycle()
		pr.rec, pr.before = commit.Record{}, commit.Record{}
		p.ended = append(p.ended, pr)
	}
	if p.editing == nil {
		p.reap()
	}
	p.updateGauges()
	w.drop()
	if w.cuts {
		p.truncate() // while nothing is visible that is not durable
	}
}

// overwritten notes that a slot has another meta, and what is lost with the one
// before. Nothing is newer than what the metas say any more. The caller holds the pipeline's lock.
func (p *Pager) overwritten(slot int, meta page.Meta, trailing bool) {
	p.slots.Meta[slot], p.slots.Err[slot] = meta, nil
	p.unlist(slot)
	p.trailing, p.visible = trailing, nil
	p.random[slot] = trailing
	p.dirty.Clear()
}

// holdDurable moves the pins of what power loss, or bbolt, may need: the newest
// durable state, and the one that the v2 meta of the winning slot describes, if
// that is another because its extension is trailing. The caller holds the pipeline's lock.
func (p *Pager) holdDurable(s State, trailing bool) {
	if p.held != nil {
		p.space.Unpin(*p.held)
		p.held = nil
	}
	old := p.durable.Tx
	p.space.Pin(s.Tx)
	if trailing {
		p.held = &old
	} else {
		p.space.Unpin(old)
	}
	p.durable = s
}

// Failed takes back what has not happened, and what a group whose meta was not written has changed.
func (e env) Failed(g *commit.Group[*Prepared], aborted []*Prepared, err error) {
	p, w := e.p, &e.p.group
	stopped := p.stoppedBy() != nil
	p.absorb(g) // the second of two flushes failed, or there was no room for the meta
	switch {
	case stopped:
		p.loseVisible()
	case g.Unwritten:
		if w.listed {
			if p.visible == nil {
				p.dirty.Clear()
			} else { // they are those of the group: a flush comes next, which clears them
				p.dirty.Unknown = true
			}
		}
		p.noRoom = true
		p.plainFailed = p.plainFailed || len(g.Members) == 0
	default:
		p.noRoom = p.noRoom || vfs.IsFull(err)
		for _, pr := range p.pipeline.Queue() {
			for i := range pr.w.buf.runs {
				if r := &pr.w.buf.runs[i]; r.until >= aborted[0].Number {
					r.until = 0
				}
			}
		}
	}
	p.abort(aborted, err)
	w.drop()
}

// loseVisible makes the durable state current when the writer was stopped: pages of the visible one may
// be read again from the disk, which may not have them. Readers that begin now get what it has.
func (p *Pager) loseVisible() {
	if p.visible == nil {
		return
	}
	p.visible = nil
	// What is to be aborted stands on it, and can be taken back only as long as it is pinned: see undo.
	base := p.states.Current().Tx
	p.space.Pin(base)
	p.lostBase = &base
	p.lost.Store(uint64(p.durable.Tx) + 1)
	p.space.Pin(p.durable.Tx)
	p.stopShare(p.durable.Tx)
	p.publish(p.durable)
}

// absorb notes that the first of a group's two flushes has made durable what was visible.
func (p *Pager) absorb(g *commit.Group[*Prepared]) {
	if g.Absorbed {
		p.overwritten(1-g.Slot, *p.visible, true)
		p.holdDurable(*p.states.Current(), true)
	}
}

// abort takes back what transactions, oldest first, did to the free pages, as soon as none is in edit.
func (p *Pager) abort(aborted []*Prepared, err error) {
	p.aborted = slices.Concat(aborted, p.aborted) // those that are there stood on these
	if p.editing == nil {
		p.undo()
		p.reap()
		p.updateGauges()
		return
	}
	if len(aborted) > 0 {
		p.editing.doomed = err
	}
}

// undo takes back what aborted transactions did to the free pages, the newest
// first. The caller holds the pipeline's lock, and no transaction is in edit.
func (p *Pager) undo() {
	for i := len(p.aborted) - 1; i >= 0; i-- {
		pr := p.aborted[i]
		p.aborted[i] = nil
		p.space.Unpin(pr.state.Tx)
		pr.w.space.Rollback()
		pr.w.space.Recycle()
		p.record = pr.before
		pr.rec, pr.before = commit.Record{}, commit.Record{}
		p.orphans = append(p.orphans, pr.orphans...)
		p.ended = append(p.ended, pr)
	}
	p.aborted = p.aborted[:0]
	if p.lostBase != nil {
		p.space.Unpin(*p.lostBase)
		p.lostBase = nil
	}
}
