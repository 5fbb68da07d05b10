package pager

import (
	"bytes"
	"fmt"
	"io"
	"runtime/debug"
	"slices"

	"holdfast/internal/epoch"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/space"
	"holdfast/internal/vfs"
)

// Open takes over file, locks it and finds its state. An empty file becomes a
// new database. The file is closed if Open fails.
func Open(file vfs.File, opts Options) (*Pager, error) {
	p := &Pager{file: file, opts: opts, writer: newWriterLock()}
	p.pipeline.Init(env{p})
	p.leaving = opts.SettleOnly
	if p.opts.PeriodicDelay <= 0 {
		p.opts.PeriodicDelay = periodicDelay
	}
	if p.opts.PeriodicBytes <= 0 {
		p.opts.PeriodicBytes = periodicBytes
	}
	if err := p.open(); err != nil {
		if p.gen != nil {
			_ = p.gen.mapping.Close()
		}
		if p.stoppedBy() != nil {
			p.forget()
		}
		_ = file.Close() // which gives the lock back
		return nil, err
	}
	return p, nil
}

func (p *Pager) open() error {
	if err := p.file.Lock(!p.opts.ReadOnly, p.opts.Timeout); err != nil {
		return err
	}
	size, err := p.file.Size()
	if err != nil {
		return err
	}
	if p.opts.ReadOnly {
		p.flushForReading()
	} else {
		// What an earlier process did to the file may be in the page cache only. What
		// is read below is built upon, so it must be on the disk first; of an empty
		// file, that it was truncated, as by a creation that failed.
		if err := p.flushOpening(); err != nil {
			return err
		}
		if !p.opts.NoCreate {
			if size, err = p.createIfNone(size); err != nil {
				return err
			}
		}
	}
	if err := p.readSlots(size); err != nil {
		return err
	}
	p.buffers.pageSize, p.dirty.PageSize = p.pageSize, p.pageSize
	return p.openState()
}

// readSlots finds the page size and reads both metas.
func (p *Pager) readSlots(size int64) error {
	said, whole, err := page.FindPageSize(p.file)
	if err != nil {
		return p.wrap("read the metas of", err)
	}
	if !whole {
		return p.noMeta()
	}
	ps := int(said)
	p.pageSize = ps
	if size < 2*int64(ps) {
		return fmt.Errorf("%w: file size too small: %d bytes, less than the two meta pages of %d bytes", page.ErrInvalid, size, ps)
	}
	cached := make([]byte, int(page.FirstDataPage)*ps)
	if _, err := p.file.ReadAt(cached, 0); err != nil {
		return p.wrap("read the metas of", err)
	}
	if !p.opts.ReadOnly {
		// After a flush that failed, the cache may hold a meta that the disk
		// does not. Nothing is mapped yet: mapped pages would be kept.
		if err := p.file.DropCache(0, int64(page.FirstDataPage)*int64(ps)); err != nil {
			return err
		}
	}
	metas := make([]byte, int(page.FirstDataPage)*ps)
	if _, err := p.file.ReadAt(metas, 0); err != nil {
		return p.wrap("read the metas of", err)
	}
	p.slots = page.DecodeSlots(metas[:ps], metas[ps:])
	for slot := range p.images {
		p.images[slot] = bytes.Clone(metas[slot*ps:][:min(ps, metaImage)])
	}
	best, err := p.slots.Best()
	if err != nil {
		return err
	}
	m := p.slots.Meta[best]
	if m.PageSize != uint32(ps) {
		return page.Corruptf(page.ID(best), "the metas give page sizes of %d and %d bytes", ps, m.PageSize)
	}
	if err := m.Check(size); err != nil {
		return err
	}
	p.fileSize, p.identity = size, foldIdentity(p.file.Identity())
	if p.found, err = p.find(best, metas); err != nil {
		return err
	}
	return p.dropLost(!bytes.Equal(cached, metas))
}

// dropLost drops the whole file from the cache if the disk has lost what was written: a flush has
// failed, and the process has ended before it could drop it. Linux keeps such pages as if they were
// on the disk, and ext4 may lose what is written over them, although the next flush succeeds
// (docs/decisions/001-dropping-cached-pages.md). lostMeta: the cache had a meta that the disk has
// not. Nothing is mapped yet.
func (p *Pager) dropLost(lostMeta bool) error {
	if p.opts.ReadOnly || !lostMeta && !p.found.unfinished {
		return nil
	}
	return p.file.DropCache(0, p.fileSize)
}

// noMeta is what is wrong with the first meta of a file that has none that is whole.
func (p *Pager) noMeta() error {
	buf := make([]byte, page.ExtensionOffset)
	n, err := p.file.ReadAt(buf, 0)
	if err != nil && err != io.EOF {
		return p.wrap("read the metas of", err)
	}
	m, err := page.DecodeMeta(buf[:n])
	if err == nil {
		err = page.Corruptf(0, "the meta page gives a page size of %d bytes", m.PageSize)
	}
	return err
}

// openState makes the state that was found current.
func (p *Pager) openState() error {
	p.newRecord()
	f := &p.found
	load := !p.opts.ReadOnly || p.opts.LoadFreeList || f.copied
	if load { // before anything is mapped, so that what is read can be dropped from the cache
		p.loadRecord()
	}
	if err := p.remap(p.fileSize); err != nil {
		return err
	}
	s := p.newState(State{Tx: f.tx, Meta: f.meta})
	p.findSum(&s)
	if err := p.checkRoot(&s); err != nil {
		return err
	}
	if load && p.space == nil {
		if err := p.loadFree(&s); err != nil {
			return err
		}
	}
	p.recorded, p.trailing, p.durable = p.record, f.trailing, s
	if err := p.checkCopy(&s); err != nil {
		return err
	}
	if err := p.checkTop(&s); err != nil { // damage to a copy of a file in use is told as such, above
		return err
	}
	if p.space != nil && f.free != nil { // what it says was read: let it not keep both meta pages in memory
		f.free = &extension.Extension{Free: &extension.FreeSet{Count: f.free.Free.Count}}
	}
	if p.space != nil {
		p.space.Pin(s.Tx) // as the durable state,
		p.space.Pin(s.Tx) // and as the current one
	}
	p.gen.states++
	p.states = epoch.New(s, p.retire)
	if f.trailing && !p.opts.ReadOnly {
		return p.plainOpening()
	}
	return nil
}

// plainOpening gives the state that was found a plain meta, as Sync does: bbolt and we open
// the same from then on, and nothing needs the older state of the trailing meta.
func (p *Pager) plainOpening() error {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	if slot, label := p.slots.Next(); label > page.MaxLabel {
		return errLabelsUsedUp(slot)
	}
	p.random[p.found.best] = true
	return p.pipeline.FinishHeld(p.barrier(true))
}

// errLabelsUsedUp is the error of a file in whose slot no meta can be written any more.
func errLabelsUsedUp(slot int) error {
	return page.Corruptf(page.ID(slot), "transaction ids are used up")
}

// newState is s, read through the newest mapping.
func (p *Pager) newState(s State) State {
	s.gen, s.image = p.gen, p.image(s.Meta.HighWater)
	return s
}

// loadRecord fills space as an extension records it, if one does and is believed.
func (p *Pager) loadRecord() {
	f := &p.found
	if f.free == nil {
		return
	}
	sp, rec, err := p.readRecord(f.free, f.meta)
	if err != nil {
		p.logf("%s: what is recorded of its free pages is not believed: %v", p.file.Name(), err)
		return
	}
	p.record = rec
	for _, l := range f.free.Lists {
		named := false
		for slot := range p.lists {
			if p.slots.Err[slot] == nil && p.slots.Meta[slot].Freelist == l.Start {
				p.lists[slot], named = l, true
			}
		}
		if !named {
			p.orphans = append(p.orphans, l)
		}
	}
	p.loaded(sp, OpenedByRecord)
}

func (p *Pager) loaded(sp *space.Space, how OpenPath) {
	p.space = sp
	p.opened.Store(&how)
	p.updateGauges()
}

// loadFree fills space from the freelist page of state s, or by scanning.
func (p *Pager) loadFree(s *State) (err error) {
	defer s.image.CatchFault(debug.SetPanicOnFault(true), &err)
	opened := OpenedByFreelist
	if s.Meta.Freelist == page.NoFreelist {
		opened = OpenedByScan
	}
	sp, lists, err := p.findFree(s, p.found.best)
	if err != nil {
		return err
	}
	p.lists = lists
	p.loaded(sp, opened)
	return nil
}

// findFree makes the free set of state s, and the freelists of both slots, from
// the freelist page or by scanning.
func (p *Pager) findFree(s *State, best int) (sp *space.Space, lists [2]page.Extent, err error) {
	var free []page.Extent
	if id := s.Meta.Freelist; id != page.NoFreelist {
		var n uint64
		if free, n, err = s.image.Freelist(id); err != nil {
			return nil, lists, err
		}
		lists[best] = page.Extent{Start: id, N: n}
		if _, whole := without(free, lists[best]); whole != 0 {
			return nil, lists, page.Corruptf(id, "the freelist page lists itself as free")
		}
		if _, whole := without(free, page.Extent{Start: s.Meta.Root, N: 1}); whole != 0 {
			return nil, lists, page.Corruptf(s.Meta.Root, "the root page is listed as free")
		}
	} else if free, err = p.scan(s); err != nil {
		return nil, lists, err
	}
	// The other slot's freelist is of no use any more, but that slot would be
	// opened if the better one were lost: its pages wait until it is overwritten.
	if list, ok := p.otherList(s, 1-best); ok {
		if rest, taken := without(free, list); taken == list.N {
			free, lists[1-best] = rest, list
		}
	}
	load := space.Load(s.Meta.HighWater)
	for _, e := range free {
		if err := load.Put(e); err != nil {
			return nil, lists, err
		}
	}
	return load.Space(), lists, nil
}

// otherList is the freelist run that a slot names which is not the better one.
func (p *Pager) otherList(s *State, slot int) (list page.Extent, ok bool) {
	var unreadable error // then so be it: that page is not needed
	defer s.image.CatchFault(debug.SetPanicOnFault(true), &unreadable)
	if p.slots.Err[slot] != nil {
		return page.Extent{}, false
	}
	id := p.slots.Meta[slot].Freelist
	if id < page.FirstDataPage || id >= s.Meta.HighWater {
		return page.Extent{}, false
	}
	h, err := s.image.Header(id)
	if err != nil || h.ID != id || h.Flags != page.FlagFreelist {
		return page.Extent{}, false
	}
	return page.Extent{Start: id, N: uint64(h.Overflow) + 1}, true
}

// without takes e out of ascending extents. It returns the rest and how many
// pages of e were among them.
func without(free []page.Extent, e page.Extent) (rest []page.Extent, taken uint64) {
	for _, f := range free {
		from, to := max(f.Start, e.Start), min(f.End(), e.End())
		if from >= to {
			rest = append(rest, f)
			continue
		}
		taken += uint64(to - from)
		if f.Start < from {
			rest = append(rest, page.Extent{Start: f.Start, N: uint64(from - f.Start)})
		}
		if to < f.End() {
			rest = append(rest, page.Extent{Start: to, N: uint64(f.End() - to)})
		}
	}
	return rest, taken
}

// scan finds the free pages by visiting all that are used.
func (p *Pager) scan(s *State) ([]page.Extent, error) {
	p.logf("%s has no freelist page: scanning %d pages", p.file.Name(), s.Meta.HighWater)
	used := newPageSet(s.Meta.HighWater)
	used.add(page.Extent{Start: 0, N: uint64(page.FirstDataPage)})
	err := p.opts.Scan(s, func(e page.Extent) error {
		if at, ok := used.add(e); !ok {
			return page.Corruptf(at, "the page is used twice")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return slices.Collect(used.missing()), nil
}
