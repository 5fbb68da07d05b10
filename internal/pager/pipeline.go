package pager

import (
	"cmp"
	"runtime"
	"slices"

	"holdfast/internal/page"
	"holdfast/internal/plant"
	"holdfast/internal/vfs"
)

// How commits become durable. Prepare puts a transaction into the queue and lets
// the next one begin. Its caller then calls Finish: if there is no leader, it leads.
// The leader takes all that is queued, the group, writes its pages and one meta,
// flushes, makes the newest state of the group current and wakes the others.
// What is prepared meanwhile is the next group, which one of its callers leads;
// so nothing of a group is written before the flush of the one before has ended.
//
//	queue ──lead──▸ flight ──land──▸ landed ──reap──▸ buffers for others
//	   │               │
//	   └─────abort─────┴──▸ aborted ──undo (when none is open)──▸ landed
//
// All of it is guarded by commit, which the leader lets go while it writes.

// Prepared is a transaction that is complete and not durable yet, or a barrier,
// which is a request that everything be durable.
type Prepared struct {
	p     *Pager
	w     *WriteTx // nil of a barrier
	mode  Durability
	plain bool        // bbolt is to find the state
	even  bool        // of a barrier: and both slots are to need no page past it
	anew  bool        // of a barrier: a meta is written even if the newest one is plain
	list  page.Extent // the freelist that its meta names; N is 0 if it names none
	state State
	size  int // bytes of its pages

	rec     record        // of the free pages, with its own change
	before  record        // without
	orphans []page.Extent // that it has freed

	laidOver bool
	done     bool
	err      error
	wake     chan bool     // to the one in Finish: true, lead; false, done
	ended    chan struct{} // closed when done, for all others; nil while none waits
}

// Bounds of what is prepared and not written; beyond, writers wait.
const (
	maxQueue      = 1024
	maxQueueBytes = 64 << 20
)

// Finish returns when the transaction is durable and visible. If it fails the
// transaction has not happened; if it failed in a flush, or in writing the meta other
// than for want of room, nothing more is written until the file is opened again.
func (pr *Prepared) Finish() error {
	p := pr.p
	p.commit.Lock()
	if pr.done { // the leader was quick
		p.commit.Unlock()
		return pr.err
	}
	if p.leading {
		pr.wake = make(chan bool, 1)
		p.commit.Unlock()
		if lead := <-pr.wake; !lead {
			return pr.err
		}
		// Those whom the leader before has woken are ready to run after us. Let them come
		// first: once we wait for the disk, no processor may run them for a while.
		runtime.Gosched()
		p.commit.Lock()
	}
	p.leading = true
	for !pr.done {
		p.lead()
	}
	p.passOn()
	p.commit.Unlock()
	return pr.err
}

// finish is Finish for a caller that holds commit, which is given up meanwhile.
func (p *Pager) finish(pr *Prepared) error {
	p.commit.Unlock()
	defer p.commit.Lock()
	return pr.Finish()
}

// passOn gives the lead to somebody who waits, if anybody does. The caller holds
// commit and the lead.
func (p *Pager) passOn() {
	for _, prs := range [2][]*Prepared{p.queue, p.barriers} {
		for _, pr := range prs {
			if pr.wake != nil {
				pr.wake <- true
				return
			}
		}
	}
	// Those in the queue, if any, have not called Finish yet, and will lead.
	p.leading = false
	p.idle.Broadcast()
	p.settleLater()
}

// end wakes those who wait for pr. The caller holds commit.
func (pr *Prepared) end(err error) {
	pr.done, pr.err = true, err
	if pr.wake != nil {
		select {
		case pr.wake <- false:
		default: // it is the one who leads
		}
	}
	if pr.ended != nil {
		close(pr.ended)
	}
}

// waitFor waits for a transaction that somebody else finishes.
func (p *Pager) waitFor(pr *Prepared) error {
	p.commit.Lock()
	if !pr.done {
		if pr.ended == nil {
			pr.ended = make(chan struct{})
		}
		ended := pr.ended
		p.commit.Unlock()
		<-ended
		return pr.err
	}
	p.commit.Unlock()
	return pr.err
}

// newest is the state on which the next transaction stands, and the Prepared that
// it is of; nil if it is the current one. The caller holds commit.
func (p *Pager) newest() (*State, *Prepared) {
	for _, prs := range [2][]*Prepared{p.queue, p.flight} {
		if n := len(prs); n > 0 {
			return &prs[n-1].state, prs[n-1]
		}
	}
	return p.states.Current(), nil
}

// waitForRoom waits while too much is prepared. The caller holds the turn and
// commit, which it gives up meanwhile.
func (p *Pager) waitForRoom() error {
	for len(p.queue) > maxQueue || p.queued > maxQueueBytes {
		last := p.queue[len(p.queue)-1]
		p.commit.Unlock()
		_ = p.waitFor(last) // whose failure is its own
		p.commit.Lock()
		if err := p.stoppedBy(); err != nil {
			return err
		}
	}
	return nil
}

// lead writes one group. The caller holds the lead, and commit, which is given
// up meanwhile.
func (p *Pager) lead() {
	g := p.form()
	p.commit.Unlock()
	failed, err := g.write()
	p.commit.Lock()
	clear(p.flight)
	p.flight = p.flight[:0]
	switch {
	case err == nil:
		p.land(g)
		if g.cuts {
			p.truncate() // while nothing is visible that is not durable
		}
	case failed != 0 && p.stoppedBy() == nil:
		p.abortFrom(g, failed, err)
	case g.unwritten:
		p.abortUnwritten(g, err)
	default:
		p.abortAll(g, err)
	}
}

// form makes a group of all that waits. The caller holds commit.
func (p *Pager) form() *group {
	g := &p.group
	*g = group{
		p: p, members: append(g.members[:0], p.queue...), barriers: append(g.barriers[:0], p.barriers...),
		runs: g.runs[:0], freed: g.freed[:0], base: p.durable, state: *p.states.Current(), rec: p.recorded, sum: p.sum, mode: None,
		unsynced: p.unsynced, strict: p.opts.StrictCompat, settles: p.trailing, visible: p.visible != nil,
	}
	p.flight = append(p.flight[:0], p.queue...)
	clear(p.queue)
	clear(p.barriers)
	p.queue, p.barriers, p.queued = p.queue[:0], p.barriers[:0], 0
	g.lists = p.listsInUse(g.lists[:0])
	g.slot, g.label = p.slots.Next()
	if plant.On(plant.WrongSlot) {
		g.slot = 1 - g.slot
	}
	if p.visible != nil && plant.On(plant.VisibleAlternates) {
		g.label = p.visible.Label + 1
		g.slot = int(g.label % 2)
	}
	for _, pr := range g.barriers {
		g.mode, g.plain, g.even, g.anew = min(g.mode, pr.mode), g.plain || pr.plain, g.even || pr.even, g.anew || pr.anew
		if pr.list.N > 0 {
			g.list = pr.list
		}
	}
	g.cuts = g.even
	g.even = g.even && p.slots.Err[g.slot] == nil && p.slots.Meta[g.slot].HighWater > g.state.Meta.HighWater
	if len(g.members) == 0 {
		return g
	}
	p.counts.Group.Store(int64(len(g.members)))
	last := g.members[len(g.members)-1]
	g.state, g.rec = last.state, last.rec
	if g.list = last.list; g.list.N > 0 {
		g.lists = append(g.lists, g.list)
	}
	for _, pr := range g.members {
		g.mode = min(g.mode, pr.mode)
		g.sum.AddSum(pr.w.sum)
		g.plain = g.plain || pr.plain || pr.w.early && !plant.On(plant.EarlyUnflushed) // no list could name its pages
		if len(p.dirty.extents) > 0 && !plant.On(plant.FreedStillListed) {
			g.freed = append(g.freed, pr.w.space.Freed()...)
		}
		for i := range pr.w.buf.runs {
			r := &pr.w.buf.runs[i]
			if r.until == 0 || r.until > last.state.Tx {
				g.runs = append(g.runs, *r)
			}
		}
	}
	if len(g.members) > 1 {
		sortRuns(g.runs)
		slices.SortFunc(g.freed, func(a, b page.Extent) int { return cmp.Compare(a.Start, b.Start) })
	}
	if g.mode == Periodic && p.dirty.size > p.opts.PeriodicBytes {
		g.mode = Full
	}
	return g
}

// land makes a group that was written current. The caller holds commit.
func (p *Pager) land(g *group) {
	g.state.Sum = g.sum
	switch {
	case g.mode == Periodic:
		meta := g.meta
		p.visible, p.recorded, p.unsynced = &meta, g.rec, 0
		p.flushLater()
	case g.wroteMeta:
		p.absorb(g)
		p.overwritten(g.slot, g.meta, g.trailing)
		p.lists[g.slot] = g.list
		p.holdDurable(g.state, g.trailing)
		p.recorded = g.rec
	case g.visible: // and now it is durable
		before := p.slots
		if p.overwritten(g.slot, *p.visible, true); plant.On(plant.SlotKept) {
			p.slots = before
		}
		p.holdDurable(g.state, true)
	}
	switch g.mode {
	case Full:
		p.unsynced = 0
	case None:
		p.unsynced += int64(len(g.members))
	}
	if n := len(g.members); n > 0 {
		p.unsettled = false
		for _, pr := range g.members[:n-1] {
			p.space.Unpin(pr.state.Tx)
		}
		// The pin of the last one is that of the state from now on.
		p.discountLater(g)
		p.sum = g.sum
		p.gen.states++
		p.states.Publish(p.newState(g.state))
		p.states.Sweep()
		p.counts.Commits.Add(int64(n))
		p.counts.Groups.Add(1)
	}
	for _, pr := range g.members {
		pr.w.space.Recycle()
		pr.rec, pr.before = record{}, record{}
		p.landed = append(p.landed, pr)
		pr.end(nil)
	}
	for _, pr := range g.barriers {
		pr.end(nil)
	}
	if p.editing == nil {
		p.reap()
	}
	p.updateGauges()
	g.drop()
}

// overwritten notes that a slot has another meta, and what is lost with the one
// before. Nothing is newer than what the metas say any more. The caller holds commit.
func (p *Pager) overwritten(slot int, meta page.Meta, trailing bool) {
	p.slots.Meta[slot], p.slots.Err[slot] = meta, nil
	p.unlist(slot)
	p.trailing, p.visible = trailing, nil
	p.random[slot] = trailing
	p.dirty.clear()
}

// holdDurable moves the pins of what power loss, or bbolt, may need: the newest
// durable state, and the one that the v2 meta of the winning slot describes, if
// that is another because its extension is trailing. The caller holds commit.
func (p *Pager) holdDurable(s State, trailing bool) {
	if p.held != nil {
		p.space.Unpin(*p.held)
		p.held = nil
	}
	old := p.durable.Tx
	p.space.Pin(s.Tx)
	if trailing && !plant.On(plant.BaseNotHeld) {
		p.held = &old
	} else {
		p.space.Unpin(old)
	}
	p.durable = s
}

// abortFrom aborts the members of a group from transaction tx on, whose pages
// could not be written, and all that stands on them. Those before go back into the
// queue. The caller holds commit.
func (p *Pager) abortFrom(g *group, tx page.TxID, err error) {
	n := 0
	for n < len(g.members) && g.members[n].state.Tx < tx {
		n++
	}
	doomed := slices.Concat(g.members[n:], p.queue)
	p.queue = append(p.queue[:0], g.members[:n]...)
	p.queued = 0
	for _, pr := range p.queue {
		p.queued += int64(pr.size)
		for i := range pr.w.buf.runs {
			if r := &pr.w.buf.runs[i]; r.until >= tx && !plant.On(plant.UntilKept) {
				r.until = 0
			}
		}
	}
	p.barriers = slices.Concat(g.barriers, p.barriers)
	p.noRoom = p.noRoom || vfs.IsFull(err)
	p.abort(doomed, err)
	g.drop()
}

// abortAll aborts whatever waits, because the writer was stopped. The caller
// holds commit.
func (p *Pager) abortAll(g *group, err error) {
	doomed := slices.Concat(g.members, p.queue)
	barriers := slices.Concat(g.barriers, p.barriers)
	p.queue, p.barriers, p.queued = nil, nil, 0
	if !plant.On(plant.AbsorbedForgotten) {
		p.absorb(g) // the second of two flushes failed
	}
	if p.visible != nil && !plant.On(plant.StopKeepsVisible) {
		// Pages of the visible state may be read again from the disk, which may not
		// have them. Readers that begin now get what it has.
		p.visible = nil
		p.lost.Store(uint64(p.durable.Tx) + 1)
		p.space.Pin(p.durable.Tx)
		p.gen.states++
		p.states.Publish(p.newState(p.durable))
	}
	p.abort(doomed, err)
	for _, pr := range barriers {
		pr.end(err)
	}
	g.drop()
}

func (p *Pager) abort(doomed []*Prepared, err error) {
	p.aborted = slices.Concat(doomed, p.aborted) // those that are there stood on these
	for _, pr := range doomed {
		pr.end(err)
	}
	if p.editing == nil || plant.On(plant.UndoEarly) {
		p.undo()
		p.reap()
		p.updateGauges()
		return
	}
	if len(doomed) > 0 {
		p.editing.doomed = err
	}
}

// undo takes back what aborted transactions did to the free pages, the newest
// first. The caller holds commit, and no transaction is in edit.
func (p *Pager) undo() {
	if plant.On(plant.AbortOrder) {
		slices.Reverse(p.aborted)
	}
	for i := len(p.aborted) - 1; i >= 0; i-- {
		pr := p.aborted[i]
		p.aborted[i] = nil
		p.space.Unpin(pr.state.Tx)
		pr.w.space.Rollback()
		pr.w.space.Recycle()
		if !plant.On(plant.RecordKept) {
			p.record = pr.before
		}
		pr.rec, pr.before = record{}, record{}
		if !plant.On(plant.OrphansLost) {
			p.orphans = append(p.orphans, pr.orphans...)
		}
		p.landed = append(p.landed, pr)
	}
	p.aborted = p.aborted[:0]
}
