package pager

import (
	"bytes"
	"errors"
	"fmt"

	"holdfast/internal/commit"
	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// found is what the slots of a file say.
type found struct {
	best       int       // slot that bbolt opens
	meta       page.Meta // of the newest state; Label and Freelist are those of the slot
	tx         page.TxID
	trailing   bool // the slot's extension is: it names another state than the slot's meta
	unfinished bool // and that one is not whole
	copied     bool // another file than this was open, and not closed, when it was written
	listed     bool // the other slot lists what a flush has written
	unreadable bool // what stands after the slot's meta, or the other meta: it may have named another state
	sum        page.Sum
	// free is the extension that records the state's free pages; nil if none does.
	free *extension.Extension
}

// Finding is what opening has found.
type Finding struct {
	Tx       page.TxID // number of the newest state that is whole
	Label    page.Label
	Slot     int
	Trailing bool // bbolt finds another state in the slot than we do, an older one unless Unfinished
	// Unfinished: a newer state was begun, and what was to be its flush did not end.
	Unfinished bool
	Unflushed  bool   // it was opened for reading, and what was found could not be flushed before
	Unreadable bool   // what the meta page in the slot has besides bbolt's meta, or the other meta page
	Recorded   bool   // the free pages are
	FreePages  uint64 // so many, if they are
}

// Finding tells what opening has found.
func (p *Pager) Finding() Finding {
	if p.foreign != nil {
		p.pipeline.Lock()
		defer p.pipeline.Unlock()
		return p.foreign.newest
	}
	f := &p.found
	found := Finding{Tx: f.tx, Label: f.meta.Label, Slot: f.best, Trailing: f.trailing, Unfinished: f.unfinished, Unreadable: f.unreadable}
	found.Unflushed = p.unflushed
	if f.free != nil {
		found.Recorded, found.FreePages = true, f.free.Free.Count
	}
	return found
}

// find finds the newest state that is whole. metas are both meta pages.
//
// It fails where a newer state may be there that cannot be looked at: to open the
// one before would be to lose a commit that was acknowledged.
func (p *Pager) find(best int, metas []byte) (found, error) {
	f := found{best: best, meta: p.slots.Meta[best], tx: page.TxID(p.slots.Meta[best].Label)}
	exts, err := p.extensions(&f, metas)
	if err != nil {
		return f, err
	}
	own, other := exts[best], exts[1-best]
	f.listed = other != nil && other.Trailing != nil
	if own != nil && !p.believes(best, own, other) {
		own = nil
	}
	f.copied = p.isCopied(own, other)
	if own == nil {
		// bbolt, which knows labels only, may have written the file since we gave
		// the last number, or gone back to a state before: it is none of ours.
		for _, ext := range exts {
			if ext != nil {
				f.tx = max(f.tx, ext.Tx+1)
			}
		}
		if f.unreadable && other != nil && p.names(1-best, other, f.meta) {
			f.sum = other.Sum
		}
		return f, nil
	}
	f.tx, f.free, f.sum = own.Tx, own, own.Sum
	if own.Trailing == nil {
		if err := p.checkBase(&f, other); err != nil {
			return f, err
		}
	}
	if t := own.Trailing; t != nil {
		f.trailing = true
		meta := f.meta
		meta.Root, meta.Sequence, meta.HighWater = t.Root, t.Sequence, t.HighWater
		why, err := p.verify(meta, t)
		if err != nil {
			return f, err
		}
		if why == nil {
			f.meta = meta
		} else {
			p.logf("%s: transaction %d was not finished: %v", p.file.Name(), own.Tx, why)
			f.tx, f.free, f.sum, f.unfinished = t.Base, nil, t.BaseSum, true
			if other != nil && other.Tx == t.Base {
				f.free = other
			}
			if err := p.checkBase(&f, other); err != nil {
				return f, err
			}
		}
	}
	if f.free != nil && f.free.Free == nil {
		f.free = nil
	}
	return f, nil
}

// extensions reads what both slots have besides bbolt's meta, as far as it makes sense, and tells f whether a newer state may be
// lost.
func (p *Pager) extensions(f *found, metas []byte) (exts [2]*extension.Extension, err error) {
	best := f.best
	for slot := range exts {
		buf := metas[slot*p.pageSize:][:p.pageSize]
		ext, err := extension.Decode(buf)
		if slot == best && err != nil && !errors.Is(err, extension.ErrPlainVersion) && !isZero(buf[page.ExtensionOffset:]) {
			f.unreadable = true
		}
		switch {
		case p.slots.Err[slot] != nil || errors.Is(err, extension.ErrNone):
		case slot == best && (errors.Is(err, extension.ErrVersion) || errors.Is(err, extension.ErrNoChecksum)):
			return exts, fmt.Errorf("the newest state of %s cannot be told: meta page %d: %w", p.file.Name(), slot, err)
		case err != nil:
			p.logf("%s: slot %d: %v", p.file.Name(), slot, err)
		case ext.Tx > page.TxID(page.MaxLabel) || ext.Trailing != nil && ext.Trailing.Base >= ext.Tx:
			p.logf("%s: slot %d: an extension of transaction %d makes no sense", p.file.Name(), slot, ext.Tx)
		default:
			exts[slot] = ext
			p.inUse[slot] = ext.File != 0
		}
	}
	if f.unreadable {
		p.logf("%s: what meta page %d has besides bbolt's meta cannot be read: the last flush was cut short, or its commits are lost by damage", p.file.Name(), best)
	}
	if err := p.slots.Err[1-best]; err != nil {
		f.unreadable = true
		p.logf("%s: meta page %d is not whole, and may have named a newer state: the last flush was cut short, or its commits are lost by damage: %v", p.file.Name(), 1-best, err)
	}
	return exts, nil
}

// names tells whether the extension of a slot is of the state that m describes: the newest one when m was
// written, with a trailing extension that cannot be read. Roots of consecutive states lie in different
// pages, but where nothing else has changed.
func (p *Pager) names(slot int, ext *extension.Extension, m page.Meta) bool {
	if t := ext.Trailing; t != nil {
		return t.Root == m.Root && t.Sequence == m.Sequence && t.HighWater == m.HighWater
	}
	of := p.slots.Meta[slot]
	return of.Root == m.Root && of.Sequence == m.Sequence && of.HighWater == m.HighWater
}

// isZero tells whether b is as bbolt leaves what it does not use.
func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// believes tells whether the extension of the better slot counts: bbolt copies
// slots, and an extension is not for a state that was gone back to.
func (p *Pager) believes(best int, own, other *extension.Extension) bool {
	label := p.slots.Meta[best].Label
	highest := p.slots.Err[1-best] != nil || p.slots.Meta[1-best].Label < label
	if !highest || int(label%2) != best {
		p.logf("%s: the extension in slot %d under label %d does not count", p.file.Name(), best, label)
		return false
	}
	if other != nil && other.Database != own.Database {
		p.logf("%s: the extensions are those of two databases", p.file.Name())
		return false
	}
	return true
}

// errUnfinished says that pages are not those that a flush was to write.
var errUnfinished = errors.New("not all of its pages are there")

// verify tells whether the pages that a trailing extension lists are on the disk:
// why not, or an error if they cannot be read.
func (p *Pager) verify(m page.Meta, t *extension.Trailing) (why, err error) {
	if err := m.Check(p.fileSize); err != nil {
		return err, nil
	}
	h, err := extension.NewHasher(t.Key)
	if err != nil {
		return nil, err
	}
	var unreadable error
	var sum extension.Hash
	listed := int64(0)
	var buf []byte
	err = extension.Extents(t.Written, m.HighWater, func(e page.Extent) error {
		if e.Start < page.FirstDataPage {
			return page.Corruptf(e.Start, "a meta page is listed as written")
		}
		if e.N > uint64(commit.MaxListed-listed)/uint64(p.pageSize) {
			return page.Corruptf(e.Start, "more than %d bytes are listed as written", commit.MaxListed)
		}
		listed += int64(e.N) * int64(p.pageSize)
		if unreadable = p.dropPages(e); unreadable != nil {
			return unreadable
		}
		for e.N > 0 {
			n := min(e.N, max(1, 1<<20/uint64(p.pageSize)))
			if size := int(n) * p.pageSize; size > len(buf) {
				buf = make([]byte, size)
			}
			part := buf[:int(n)*p.pageSize]
			if _, err := p.file.ReadAt(part, int64(e.Start)*int64(p.pageSize)); err != nil {
				unreadable = p.wrap("read pages of the newest state of", err)
				return unreadable
			}
			h.Pages(&sum, e.Start, part, p.pageSize, len(part))
			e = page.Extent{Start: e.Start + page.ID(n), N: e.N - n}
		}
		return nil
	})
	switch {
	case unreadable != nil:
		return nil, unreadable
	case err == nil && sum != t.Hash:
		err = errUnfinished
	}
	return err, nil
}

// dropPages makes the next read of pages one of the disk: after a failed flush the
// cache may show what the disk does not have. Nothing is mapped yet.
func (p *Pager) dropPages(e page.Extent) error {
	if p.opts.ReadOnly || p.gen != nil {
		return nil
	}
	return p.file.DropCache(int64(e.Start)*int64(p.pageSize), int64(e.N)*int64(p.pageSize))
}
