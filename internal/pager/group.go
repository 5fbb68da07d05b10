package pager

import (
	"fmt"

	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/plant"
)

// group is the transactions that one leader writes, with one meta. What it needs
// of the Pager was copied when it was formed: it is written without the lock.
type group struct {
	p        *Pager
	members  []*Prepared
	barriers []*Prepared
	runs     []run // to write, in file order
	state    State // as of the last member
	rec      record
	sum      page.Sum // of the state
	base     State    // the newest durable one
	slot     int
	label    page.Label
	lists    []page.Extent // freelist pages in use
	list     page.Extent   // the one that the meta names; N is 0 if it names none
	freed    []page.Extent // by members, ascending
	mode     Durability    // what the most careful member wants
	plain    bool          // somebody wants bbolt to find it
	even     bool          // and the losing slot to need no page past the state's
	anew     bool          // and the meta to be written even if the newest one is plain
	cuts     bool          // somebody wants the file to be cut off
	settles  bool          // the newest durable meta is trailing
	visible  bool          // there is a newer state than the durable one, in slot
	strict   bool
	unsynced int64

	// What came of it.
	wroteMeta bool
	meta      page.Meta
	trailing  bool
	flushed   bool
	absorbed  bool // what was visible became durable before that, in the slot before
	listed    bool // the dirty pages are as of the group
	unwritten bool // there was no room for the meta, and the slot is as it was
}

// drop lets go of the members, and keeps the memory.
func (g *group) drop() {
	clear(g.members)
	clear(g.barriers)
	clear(g.runs)
	if cap(g.runs) > maxIdleRuns {
		g.runs = nil
	}
}

// write writes the group, as durably as it must be. If it returns an error and
// the number of a transaction, the pages of that one, and perhaps of later ones,
// could not be written, and nothing refers to those of the earlier ones. After an
// error of a flush or of the meta the writer is stopped, unless the group is unwritten.
func (g *group) write() (failed page.TxID, err error) {
	if err := g.p.stoppedBy(); err != nil {
		return 0, err
	}
	if len(g.members) > 0 && g.mode == Full && g.members[0].mode != Full {
		if err := g.checkLength(); err != nil {
			return 0, err
		}
	}
	if g.mode != None && g.unsynced > 0 && !plant.On(plant.NoFlushAfterNoSync) {
		// Commits that were not flushed may have given pages away that the newest
		// durable state uses, so they must be durable before these are written.
		if err := g.p.flush(); err != nil {
			return 0, err
		}
		g.flushed = true
	}
	if len(g.members) == 0 {
		return 0, g.flush()
	}
	sealRuns(g.runs)
	g.sum.AddSum(g.p.sumOf(g.runs))
	if g.mode == Periodic && plant.On(plant.MetaBeforePages) {
		if err := g.writeMeta(); err != nil {
			return 0, err
		}
		return g.p.writeRuns(g.runs)
	}
	if failed, err = g.p.writeRuns(g.runs); err != nil {
		return failed, err
	}
	return 0, g.writeMeta()
}

// checkLength is for a group that is flushed although its first member did not ask
// for that, and so has not looked when it was prepared.
func (g *group) checkLength() error {
	p := g.p
	p.commit.Lock()
	defer p.commit.Unlock()
	if err := p.checkLength(); err != nil && p.stoppedBy() == nil {
		p.logf("%v", err)
	}
	return p.stoppedBy()
}

// flush is what a barrier asks for when there is nothing to commit: that the newest
// state be durable. If it is, that bbolt find it.
func (g *group) flush() error {
	switch {
	case (g.settles && g.plain || g.even || g.anew) && !g.visible:
		if best, err := g.p.slots.Best(); err == nil && plant.On(plant.SettlesOlder) {
			g.state.Meta = g.p.slots.Meta[best]
		}
		return g.writePlain()
	case g.flushed:
		return nil
	}
	g.flushed = true
	return g.p.flush()
}

// writeMeta ends the group: what was written becomes the newest state. With one
// flush if it can be; with two if bbolt is to find the newest state after a
// crash, or if there is no room to list what was written; with none if no reader
// wants one now.
func (g *group) writeMeta() error {
	if g.mode == None {
		return g.writePlain()
	}
	strict := g.strict && !plant.On(plant.StrictIgnored)
	if !strict && (!g.plain || plant.On(plant.SyncStaysBehind)) {
		if ext, ok := g.trail(); ok {
			if g.meta, g.trailing = g.base.Meta, true; plant.On(plant.NewestNamedTwice) {
				g.meta = g.state.Meta
			}
			return g.put(ext)
		}
	}
	if g.mode == Periodic {
		if err := g.checkLength(); err != nil {
			return err
		}
	}
	if !plant.On(plant.PlainUnflushed) {
		g.mode = Full
	}
	if !plant.On(plant.NoFlushBeforeMeta) && !(plant.On(plant.CloseNoFlush) && g.list.N > 0) {
		if err := g.p.flush(); err != nil {
			return err
		}
	}
	if g.visible {
		// It is durable now, in the slot that this group was to write: the other one
		// is the loser.
		g.absorbed = true
		g.slot, g.label = 1-g.slot, g.label+1
	}
	return g.writePlain()
}

// writePlain writes a meta of the group's own state.
func (g *group) writePlain() error {
	g.meta = g.state.Meta
	return g.put(g.p.extension(g.state.Tx, g.sum, &g.rec, g.lists))
}

// put writes the meta page and, if the group is to be durable, flushes. A failure
// leaves it open what the disk holds, so it stops the writer, unless the group is
// unwritten.
func (g *group) put(ext *extension.Extension) error {
	g.meta.Freelist, g.meta.Label = page.NoFreelist, g.label
	if plant.On(plant.FreelistKept) {
		g.meta.Freelist = g.p.slots.Meta[1-g.slot].Freelist
	}
	if g.list.N > 0 {
		g.meta.Freelist = g.list.Start
	}
	if err := g.p.putMeta(g.slot, g.meta, ext); err != nil {
		g.unwritten = g.p.stoppedBy() == nil
		return err
	}
	g.wroteMeta = true
	if plant.On(plant.EvenOutEarly) && g.p.leaving {
		if err := g.p.evenOut(g.slot, g.meta); err != nil {
			return err
		}
	}
	if g.mode != Full || plant.On(plant.NoFlushAfterMeta) {
		return nil
	}
	g.flushed = true
	return g.p.flush()
}

// trail is the trailing extension of the group; false if there is no room for it.
// The group's pages are written: from here on the dirty pages are as of the group.
func (g *group) trail() (*extension.Extension, bool) {
	l := &g.p.leader
	if l.pages == nil || g.rec.hasher == nil || g.p.dirty.unknown {
		return nil, false
	}
	listed := g.runs
	if plant.On(plant.RunUnlisted) && len(listed) > 0 {
		listed = listed[:len(listed)-1]
	}
	logs, inline := len(g.rec.free.Logs), len(g.rec.free.Inline)
	room := extension.Room(g.p.pageSize, logs, len(g.lists)) - inline
	d := &g.p.dirty
	if len(d.extents) == 0 && !listable(listed, room, g.p.pageSize) {
		return nil, false
	}
	g.listed = true
	d.free(g.freed, g.p.pageSize)
	// An extent takes at least two bytes.
	if !d.write(listed, l.pages, g.p.pageSize, room/2, g.mode == Periodic) {
		return nil, false
	}
	if l.written = extension.AppendExtents(l.written[:0], d.extents); len(l.written) > room {
		return nil, false
	}
	ext := g.p.extension(g.state.Tx, g.sum, &g.rec, g.lists)
	l.trailing = extension.Trailing{
		Base: g.base.Tx, Root: g.state.Meta.Root, Sequence: g.state.Meta.Sequence,
		HighWater: g.state.Meta.HighWater, BaseSum: g.base.Sum, Key: l.key, Hash: d.hash, Written: l.written,
	}
	ext.Trailing = &l.trailing
	return ext, true
}

// listable tells whether a list of runs, in file order, may fit into room bytes:
// before the checksums of a large commit are made for nothing.
func listable(runs []run, room, pageSize int) bool {
	extents, bytes, next := 0, 0, page.ID(0)
	for i := range runs {
		if runs[i].id != next {
			extents++
		}
		bytes += len(runs[i].bytes)
		next = runs[i].id + page.ID(len(runs[i].bytes)/pageSize)
	}
	return 2*extents <= room && bytes <= maxListed
}

// leader is memory of the leader.
type leader struct {
	meta     []byte // a page
	vec      [][]byte
	written  []byte
	ext      extension.Extension
	trailing extension.Trailing
	metas    *extension.Hasher // of extensions; nil if none are written
	pages    *extension.Hasher // of pages written
	key      [16]byte          // of those
}

// extension is the plain extension of state tx. It is good until the next call,
// by the leader.
func (p *Pager) extension(tx page.TxID, sum page.Sum, rec *record, lists []page.Extent) *extension.Extension {
	if plant.On(plant.RecordOfNewest) {
		rec = &p.record
	}
	if plant.On(plant.ListsOmitted) {
		lists = nil
	}
	if plant.On(plant.ListsLate) {
		lists = p.listsInUse(nil)
	}
	e := &p.leader.ext
	*e = extension.Extension{Tx: tx, Sum: sum, Lists: lists}
	if (!p.leaving || plant.On(plant.LeftInUse)) && !plant.On(plant.IdentityMissing) {
		e.File = p.identity
	}
	if rec.known || plant.On(plant.EmptyAfterScan) {
		e.Free = &rec.free
	}
	return e
}

// putMeta writes a meta page. A failure stops the writer, unless it is for want of room and
// has left the slot as it was.
func (p *Pager) putMeta(slot int, m page.Meta, ext *extension.Extension) error {
	l := &p.leader
	if l.meta == nil {
		l.meta = make([]byte, p.pageSize)
	}
	page.EncodeMeta(l.meta, page.ID(slot), m, nil)
	if l.metas != nil && ext != nil {
		if err := extension.Encode(l.meta, ext, l.metas); err != nil {
			return p.stop(err)
		}
	}
	if n, err := p.file.WriteAt(l.meta, int64(slot)*int64(p.pageSize)); err != nil && !plant.On(plant.MetaErrorSwallowed) {
		if p.unwritten(slot, n, err) {
			return fmt.Errorf("write meta page %d: %w", slot, err)
		}
		return p.stop(err)
	}
	copy(p.images[slot], l.meta)
	p.inUse[slot] = ext != nil && ext.File != 0
	p.counts.Writes.Add(1)
	p.counts.BytesWritten.Add(int64(len(l.meta)))
	return nil
}

// sealRuns seals page runs that are complete.
func sealRuns(runs []run) {
	for i := range runs {
		if r := &runs[i]; r.end > 0 {
			page.Seal(r.bytes, r.id, r.end)
		}
	}
}

// writeRuns writes page runs, which are in file order, neighbours in one call. If
// that fails it returns the number of the oldest transaction one of whose runs
// was in the call.
func (p *Pager) writeRuns(runs []run) (failed page.TxID, err error) {
	ps := page.ID(p.pageSize)
	for from := 0; from < len(runs); {
		vec := p.leader.vec[:0]
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
		p.leader.vec = vec
		if err != nil && !plant.On(plant.WriteErrorSwallowed) {
			failed = runs[from].by
			for _, r := range runs[from:to] {
				failed = min(failed, r.by)
			}
			return failed, fmt.Errorf("write %d pages: %w", next-runs[from].id, err)
		}
		p.counts.Writes.Add(1)
		p.counts.BytesWritten.Add(int64(next-runs[from].id) * int64(ps))
		from = to
	}
	return 0, nil
}
