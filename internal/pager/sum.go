package pager

import (
	"runtime/debug"

	"holdfast/internal/page"
)

// With each state the sum of the fingerprints of all page runs in its trees is recorded. Nothing goes through them for
// that: what a transaction gives up is taken off, what it writes is added.
//
// Runs get their seals, and so their fingerprints, when they are written. So what a transaction gives up is
// taken off
//
//   - at once, if the run was in the file before all that is prepared, or was written by the transaction's Stream;
//   - when its group is published, if the run was prepared and not written at that time (see discountLater): the
//     leader writes it, since a transaction of a later group gave it up;
//   - never, if it never was written, since the same group has given it up.

// sumOf is the sum of runs that are complete, but for those in no tree.
func (p *Pager) sumOf(runs []run) page.Sum {
	sum := page.Sum{Known: true}
	for i := range runs {
		if r := &runs[i]; !r.record {
			sum.Add(page.Fingerprint(r.bytes, r.id))
		}
	}
	return sum
}

// discount takes the fingerprint of the run at page id, of n pages, which the transaction gives up, off its sum, unless
// that is to be done when it is written. The error is why the write of it has failed.
func (w *WriteTx) discount(id page.ID, n uint64) error {
	image := &w.base.image
	if s := w.stream; s != nil && w.space.Owns(id) {
		var err error
		if image, err = s.written(id); err != nil || image == nil {
			return err
		}
	} else if w.on != nil && w.p.overlay[id] != nil { // see take
		return nil
	}
	f, ok, err := w.p.fingerprint(image, id, n)
	if err != nil {
		w.p.logf("%s: what the checksums of all pages add up to is not recorded any more: a page was given up that cannot be read: %v", w.p.file.Name(), err)
	}
	w.sum.Remove(f, ok)
	return nil
}

// fingerprint is that of the run at page id, of n pages; false if it has none or cannot be read. That is
// not an error of the caller, who needs the rest of the run for nothing else: what is unreadable can be
// given up.
func (p *Pager) fingerprint(image *page.Image, id page.ID, n uint64) (f uint64, ok bool, err error) {
	defer image.CatchFault(debug.SetPanicOnFault(true), &err)
	run, err := image.Run(id, n)
	if err != nil { // which Free returns, or it is damage
		return 0, false, nil
	}
	f, ok = page.Fingerprint(run, id)
	return f, ok, nil
}

// written is where the page run at page id, which the transaction has taken, can be read in the file; nil if
// it was not written. The error is why a write has failed: nothing is to be read then.
func (s *Stream) written(id page.ID) (*page.Image, error) {
	if _, ok := s.own.buffered[id]; ok {
		return nil, nil
	}
	_ = s.await() // whose error stays
	if s.err != nil || len(s.own.views) == 0 {
		return nil, s.err
	}
	return &s.own.views[len(s.own.views)-1].image, nil
}

// take notes that the transaction has given up r, a run of the overlay, and takes it off the sum if it is written: all
// transactions up to published are. The caller holds the pipeline's lock.
func (w *WriteTx) take(r *run, published page.TxID) {
	if r.until = w.tx; r.by <= published && !r.record {
		w.sum.Remove(page.Fingerprint(r.bytes, r.id))
	}
}

// discountLater takes what the members of a group have written, and transactions in the queue have
// given up, off the sums of these. The caller holds the pipeline's lock.
func (p *Pager) discountLater(members []*Prepared) {
	queue := p.pipeline.Queue()
	if len(queue) == 0 {
		return
	}
	first := queue[0].state.Tx // their numbers are dense
	for _, pr := range members {
		for i := range pr.w.buf.runs {
			r := &pr.w.buf.runs[i]
			if r.until < first || r.record {
				continue
			}
			w := queue[r.until-first].w
			w.sum.Remove(page.Fingerprint(r.bytes, r.id))
		}
	}
}

// maxSummed is up to how many pages a file may have whose sum is made at opening if it is not recorded.
const maxSummed = 256

// findSum gives the state that was found its sum, as it is recorded; that of a new or small file is made.
func (p *Pager) findSum(s *State) {
	p.sum = p.found.sum
	if !p.sum.Known && !p.opts.ReadOnly && p.opts.Scan != nil && s.Meta.HighWater <= maxSummed {
		p.sum = p.makeSum(s)
	}
	s.Sum = p.sum
}

// FoundSum is what opening has found recorded, which is not known where the sum was made.
func (p *Pager) FoundSum() page.Sum { return p.found.sum }

// makeSum goes through the trees of a state. That of a damaged one is not known: the damage is met when it is read.
func (p *Pager) makeSum(s *State) page.Sum {
	sum := page.Sum{Known: true}
	var fault, unreadable error
	func() {
		defer s.image.CatchFault(debug.SetPanicOnFault(true), &unreadable)
		used := newPageSet(s.Meta.HighWater)
		fault = p.opts.Scan(s, func(e page.Extent) error {
			if at, ok := used.add(e); !ok { // buckets that share pages may be as many as these have paths
				return page.Corruptf(at, "the page is used twice")
			}
			run, err := s.image.Run(e.Start, e.N)
			if err == nil {
				sum.Add(page.Fingerprint(run, e.Start))
			}
			return err
		})
	}()
	sum.Known = sum.Known && fault == nil && unreadable == nil
	return sum
}

// RecordSum records the sum of the current state, for who has the file alone, commits nothing and changes seals in
// place: before the first, that it is not known, and after the last what it is. It makes durable what the caller has
// written, and takes from both slots what they list of the last flushes, since that says what the seals were.
func (p *Pager) RecordSum(sum page.Sum) error {
	if err := p.Sync(); err != nil {
		return err
	}
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	best, err := p.slots.Best()
	if err != nil {
		return err
	}
	if slot, label := p.slots.Next(); label > page.MaxLabel {
		return errLabelsUsedUp(slot)
	}
	p.leaving, p.sum = true, sum
	pr := p.barrier(true)
	pr.Anew, pr.list = true, p.lists[best]
	if err := p.pipeline.FinishHeld(pr); err != nil {
		return err
	}
	p.random[best] = true
	if err := p.evenOut(1-best, p.slots.Meta[1-best]); err != nil {
		return err
	}
	return p.flush()
}
