package pager

import (
	"holdfast/internal/page"
)

// lane is where pages of one kind are taken next to each other, if they are free:
// each piece of a commit that lies by itself costs a write call, and the disk
// another access in the flush.
type lane struct {
	next  page.ID // where the last one ended; 0: there is none yet
	pages uint64  // taken
}

// Lanes of a transaction.
const (
	ofLeaves = iota
	ofHot
)

// maxReach is the longest run of free pages that is looked for when a lane begins.
const maxReach = 64

// Allocate reserves n pages and the buffer that is written to them. See
// tree.Writer for what is hot.
func (w *WriteTx) Allocate(n uint64, hot bool) (page.ID, []byte, error) {
	w.p.pipeline.Lock()
	if w.wantsFreed(n) {
		w.p.pipeline.Unlock()
		if err := w.p.Sync(); err != nil {
			return 0, nil, err
		}
		w.p.pipeline.Lock()
	}
	id, err := w.place(n, hot)
	w.p.pipeline.Unlock()
	if err != nil {
		return 0, nil, err
	}
	buf := w.p.buffers.get(w.buf, n)
	w.buf.runs = append(w.buf.runs, run{id: id, by: w.tx, buffer: buf})
	return id, buf.bytes, nil
}

// manyFreed is how many times as much as the file would grow by must wait for a flush to have one made for it. Commits that
// each give up as much as they take have twice as much waiting all the time, and are not to flush twice each.
const manyFreed = 3

// wantsFreed tells, once for a transaction, whether to flush before n pages are taken: the transaction would make the file
// grow by more than a little, although far more has been freed, and waits for no reader but for the next flush. The caller
// holds the pipeline's lock.
func (w *WriteTx) wantsFreed(n uint64) bool {
	p := w.p
	grows := w.space.Risen() + n
	much := func() bool {
		if p.space.PendingCount() < manyFreed*grows {
			return false
		}
		_, ok := p.space.FindFree(n)
		return !ok
	}
	if w.asked || grows <= 16+uint64(p.space.HighWater())/64 || !much() {
		return false
	}
	w.asked = true
	p.letForeignGo()
	p.states.SweepAll() // what readers have given up is free already
	return p.awaitsFlush(w.on) && p.OldestReader().Since.IsZero() && much()
}

// awaitsFlush tells whether states are held until a flush ends, or until one that a transaction is based on has made. Without
// flushes there are none. The caller holds the pipeline's lock.
func (p *Pager) awaitsFlush(base *Prepared) bool {
	return p.held != nil || p.visible != nil || base != nil && base.Mode != None
}

// Seal says where the content of the run allocated last ends: it is sealed when it
// is written.
func (w *WriteTx) Seal(end int) { w.buf.runs[len(w.buf.runs)-1].end = end }

// place chooses n pages. A transaction has a lane for leaves and one for hot pages.
// The next transaction gives up the hot pages together, and another takes them
// together; leaves among them would stay, and leave less and less room for that.
//
// Of transactions that are written as a group only the hot pages of the last are,
// but the leaves of all: the lanes of one go on where those of the one before ended,
// those of leaves in the first half of a run of free pages, the others in the
// second.
//
// Runs of large values are places of their own anyway: they take the first hole that is
// long enough. (In a lane they split long holes where shorter ones would have done: a file in
// which values of up to 120,000 bytes came and went became 1.8 times as long as what was
// in it, and not 1.5 times.)
//
// While a vacuum empties the end of the file, all take the first pages that are free.
// The caller holds the pipeline's lock.
func (w *WriteTx) place(n uint64, hot bool) (id page.ID, err error) {
	p := w.p
	if p.low > 0 || n > 1 && !hot {
		return w.space.Allocate(n)
	}
	kind := ofLeaves
	if hot {
		kind = ofHot
	}
	l := &w.lanes[kind]
	if w.on != nil {
		if l.next == 0 {
			l.next = p.laneEnd[kind]
		}
		id, err = w.choose(l.next, n, maxReach, 2, uint64(kind))
	} else {
		// As many as the last transaction took, or as this one has taken already.
		reach := max(l.pages, p.last[kind]-min(l.pages, p.last[kind]))
		id, err = w.choose(l.next, n, min(reach, maxReach), 1, 0)
	}
	if err != nil {
		return 0, err
	}
	l.next = id + page.ID(n)
	l.pages += n
	p.laneEnd[kind] = l.next
	return id, nil
}

// choose takes n pages: those from next on if they are free. Or else it looks for a
// run of so many parts of reach free pages, or of the longest shorter one, and
// takes the first of a part. The caller holds the pipeline's lock.
func (w *WriteTx) choose(next page.ID, n, reach, parts, part uint64) (page.ID, error) {
	if next != 0 && w.space.Take(page.Extent{Start: next, N: n}) {
		return next, nil
	}
	for ; reach > n; reach /= 2 {
		id, ok := w.p.space.FindFree(parts * reach)
		if !ok {
			if ok = w.p.mayRise(parts * reach); !ok {
				continue
			}
			// So much that all of it, free at first, is taken soon.
			var err error
			if id, err = w.space.Rise(parts * reach); err == nil {
				err = w.space.Free(page.Extent{Start: id, N: parts * reach})
			}
			if err != nil {
				return 0, err
			}
		}
		if id += page.ID(part * reach); w.space.Take(page.Extent{Start: id, N: n}) {
			return id, nil
		}
	}
	return w.space.Allocate(n)
}

// mayRise tells whether the high-water mark may be raised by n pages although shorter
// runs below it are free: if there are few, and the file is long enough. Not on a full
// disk: the end of the file may be a hole, which cannot be filled then.
func (p *Pager) mayRise(n uint64) bool {
	if p.noRoom {
		return false
	}
	high := uint64(p.space.HighWater())
	return p.space.FreeCount()+n <= 16+high/64 && (high+n)*uint64(p.pageSize) <= uint64(p.fileSize)
}
