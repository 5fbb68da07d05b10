package pager

import (
	"cmp"
	"fmt"
	"slices"

	"holdfast/internal/commit"
	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// group is what the leader writes, besides what the protocol knows of it (commit.Group). What
// it needs of the Pager was copied when it was formed: it is written without the lock.
type group struct {
	runs   []run // to write, in file order
	state  State // as of the last member
	rec    commit.Record
	sum    page.Sum      // of the state
	base   State         // the newest durable one
	lists  []page.Extent // freelist pages in use
	list   page.Extent   // the one that the meta names; N is 0 if it names none
	freed  []page.Extent // by members, ascending
	cuts   bool          // a caller wants the file to be cut off
	meta   page.Meta     // that was written
	listed bool          // the dirty pages are as of the group
}

// drop lets go of the page runs, and keeps the memory.
func (w *group) drop() {
	clear(w.runs)
	if cap(w.runs) > maxIdleRuns {
		w.runs = nil
	}
}

// env is the Pager as the protocol sees it. Its methods are in this file and in publish.go.
type env struct{ p *Pager }

var _ commit.Env[*Prepared] = env{}

// Form gathers what the group writes, and tells the protocol what it stands on.
func (e env) Form(g *commit.Group[*Prepared]) {
	p, w := e.p, &e.p.group
	*w = group{
		runs: w.runs[:0], freed: w.freed[:0], base: p.durable, state: *p.states.Current(), rec: p.recorded, sum: p.sum,
		lists: p.listsInUse(nil), cuts: g.Even,
	}
	g.Strict, g.Trailing, g.Visible, g.Unflushed = p.opts.StrictCompat, p.trailing, p.visible != nil, p.unsynced > 0
	g.Slot, g.Label = p.slots.Next()
	for _, pr := range g.Barriers {
		if pr.list.N > 0 {
			w.list = pr.list
		}
	}
	g.Even = g.Even && p.slots.Err[g.Slot] == nil && p.slots.Meta[g.Slot].HighWater > w.state.Meta.HighWater
	if last, ok := g.Newest(); ok {
		p.counts.Group.Store(int64(len(g.Members)))
		w.gather(g, last, len(p.dirty.Extents) > 0)
	}
	if g.Mode == Periodic && p.dirty.Size > p.opts.PeriodicBytes {
		g.Mode = Full
	}
}

// gather takes over what the members have to write, and, if it is wanted, what they have freed.
func (w *group) gather(g *commit.Group[*Prepared], last *Prepared, freed bool) {
	w.state, w.rec, w.list = last.state, last.rec, last.list
	if w.list.N > 0 {
		w.lists = append(w.lists, w.list)
	}
	for _, pr := range g.Members {
		w.sum.AddSum(pr.w.sum)
		g.Plain = g.Plain || pr.w.early // no list could name its pages
		if freed {
			w.freed = append(w.freed, pr.w.space.Freed()...)
		}
		for i := range pr.w.buf.runs {
			r := &pr.w.buf.runs[i]
			if r.until == 0 || r.until > last.state.Tx {
				w.runs = append(w.runs, *r)
			}
		}
	}
	if len(g.Members) > 1 {
		sortRuns(w.runs)
		slices.SortFunc(w.freed, func(a, b page.Extent) int { return cmp.Compare(a.Start, b.Start) })
	}
}

// WritePages seals and writes the page runs of the group.
func (e env) WritePages(*commit.Group[*Prepared]) (failed page.TxID, err error) {
	w := &e.p.group
	sealRuns(w.runs)
	w.sum.AddSum(e.p.sumOf(w.runs))
	return e.p.writeRuns(w.runs)
}

// CheckLength stops the writer if the file is shorter than it was left.
func (e env) CheckLength() error {
	p := e.p
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	if err := p.checkLength(); err != nil && p.stoppedBy() == nil {
		p.logf("%v", err)
	}
	return p.stoppedBy()
}

// Flush flushes the file.
func (e env) Flush() error {
	return e.p.flush()
}

// Stopped is why nothing more may be written; nil if it may.
func (e env) Stopped() error { return e.p.stoppedBy() }

// WriteMeta writes the meta page of the group.
func (e env) WriteMeta(g *commit.Group[*Prepared], trailing bool) (fits bool, err error) {
	p, w := e.p, &e.p.group
	var ext *extension.Extension
	if trailing {
		if ext, fits = p.trail(g.Mode); !fits {
			return false, nil
		}
		w.meta = w.base.Meta
	} else {
		w.meta, ext = w.state.Meta, p.extension(w.state.Tx, w.sum, &w.rec, w.lists)
	}
	w.meta.Freelist, w.meta.Label = page.NoFreelist, g.Label
	if w.list.N > 0 {
		w.meta.Freelist = w.list.Start
	}
	if err := p.putMeta(g.Slot, w.meta, ext); err != nil {
		return true, err
	}
	return true, nil
}

// trail is the trailing extension of the group; false if there is no room for it.
// The group's pages are written: from here on the dirty pages are as of the group.
func (p *Pager) trail(mode Durability) (*extension.Extension, bool) {
	l, w, d := &p.leader, &p.group, &p.dirty
	if l.pages == nil || w.rec.Hasher == nil || d.Unknown {
		return nil, false
	}
	listed := w.runs
	logs, inline := len(w.rec.Free.Logs), len(w.rec.Free.Inline)
	room := extension.Room(p.pageSize, logs, len(w.lists)) - inline
	if len(d.Extents) == 0 && !listable(listed, room, p.pageSize) {
		return nil, false
	}
	w.listed = true
	d.Free(w.freed)
	// An extent takes at least two bytes.
	for i := range listed {
		r := &listed[i]
		if !d.Write(r.id, r.bytes, r.contentEnd(), l.pages, room/2, mode == Periodic) {
			return nil, false
		}
	}
	if l.written = extension.AppendExtents(l.written[:0], d.Extents); len(l.written) > room {
		return nil, false
	}
	ext := p.extension(w.state.Tx, w.sum, &w.rec, w.lists)
	l.trailing = extension.Trailing{
		Base: w.base.Tx, Root: w.state.Meta.Root, Sequence: w.state.Meta.Sequence,
		HighWater: w.state.Meta.HighWater, BaseSum: w.base.Sum, Key: l.key, Hash: d.Hash, Written: l.written,
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
	return 2*extents <= room && bytes <= commit.MaxListed
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
func (p *Pager) extension(tx page.TxID, sum page.Sum, rec *commit.Record, lists []page.Extent) *extension.Extension {
	e := &p.leader.ext
	*e = extension.Extension{Tx: tx, Sum: sum, Lists: lists}
	if !p.leaving {
		e.File = p.identity
	}
	if rec.Known {
		e.Free = &rec.Free
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
	if n, err := p.file.WriteAt(l.meta, int64(slot)*int64(p.pageSize)); err != nil {
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
		p.marks.Written(runs[from].id, uint64(next-runs[from].id))
		clear(vec)
		p.leader.vec = vec
		if err != nil {
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
