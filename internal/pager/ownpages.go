package pager

import (
	"slices"

	"holdfast/internal/page"
)

// own is what a transaction with a Stream knows of its own pages: those that are in
// memory, those that are in the file, and those that it has given up.
//
// Values that the transaction has read stay as they are until it ends, as those of the
// state that it began with do. So
//
//   - memory of a page that was read is not used again, but left to those who read it;
//   - once a page was read that is in the file, none in the file that is given up is
//     taken again before the edit ends: from there on nothing is written until the
//     transaction is prepared, and then nothing reads.
type own struct {
	buffered map[page.ID]int // where in buffers.runs what is not written yet stands
	dropped  bool            // some of those runs have no bytes: they were given up
	views    []view          // through which pages in the file were read, newest last
	limbo    []page.Extent   // given up, to be free when the edit ends
	ended    bool            // the edit has
	quiet    bool            // what is read is not kept
	memory   bool            // a page was read in memory
	file     bool            // and one in the file
}

// view is a mapping that the transaction keeps, and the pages that it had then.
type view struct {
	gen   *generation
	image page.Image
}

// buffer notes that the run that begins at page id will be number i of the runs.
func (o *own) buffer(id page.ID, i int) {
	if o.buffered == nil {
		o.buffered = make(map[page.ID]int)
	}
	o.buffered[id] = i
}

// page is page id, which the transaction has taken.
func (s *Stream) page(id page.ID) (page.Page, error) {
	o, b := &s.own, s.w.buf
	if i, ok := o.buffered[id]; ok {
		o.memory = o.memory || !o.quiet
		return page.Parse(b.runs[i].bytes, id)
	}
	if err := s.await(); err != nil {
		return page.Page{}, err
	}
	if s.err != nil { // what was not written is not damage
		return page.Page{}, s.err
	}
	if len(o.views) == 0 {
		return page.Page{}, page.Corruptf(id, "it is free, and in use")
	}
	o.file = o.file || !o.quiet
	return o.views[len(o.views)-1].image.UnsealedPage(id)
}

// free is called when the transaction gives up e, of which it has taken the first page.
// later: it is not free before the edit ends.
func (o *own) free(b *buffers, e page.Extent) (later bool) {
	if i, ok := o.buffered[e.Start]; ok {
		delete(o.buffered, e.Start)
		b.runs[i] = run{}
		o.dropped = true
		return false
	}
	if !o.file || o.ended {
		return false
	}
	o.limbo = append(o.limbo, e)
	return true
}

// drop forgets the runs that were given up.
func (o *own) drop(b *buffers) {
	if o.dropped {
		b.runs = slices.DeleteFunc(b.runs, func(r run) bool { return r.bytes == nil })
		o.dropped = false
	}
	clear(o.buffered)
}

// written is called before the memory of runs that were written is used again.
func (o *own) written(b *buffers) {
	if o.memory {
		b.forget()
		o.memory = false
	}
}

// hold keeps the newest mapping for reading the pages below highWater. The caller holds
// commit.
func (o *own) hold(p *Pager, highWater page.ID) {
	image := page.NewImage(p.gen.mapping.Data(), p.pageSize, highWater)
	if last := len(o.views) - 1; last >= 0 && o.views[last].gen == p.gen {
		o.views[last].image = image
		return
	}
	p.gen.states++
	o.views = append(o.views, view{p.gen, image})
}

// release lets go of the mappings. The caller holds the pipeline's lock.
func (o *own) release(p *Pager) {
	for _, v := range o.views {
		v.gen.states--
		if err := v.gen.closeIfUnused(); err != nil {
			p.logf("unmap %s: %v", p.file.Name(), err)
		}
	}
	o.views = nil
}

// EndEdit says that what follows until Prepare only writes nodes to pages: nothing is
// read for the caller any more, and nothing goes to the file.
func (w *WriteTx) EndEdit() error {
	s := w.stream
	if s == nil {
		return nil
	}
	if err := s.await(); err != nil {
		return err
	}
	w.p.pipeline.Lock()
	defer w.p.pipeline.Unlock()
	s.own.ended = true
	return s.free()
}

// Fault is the error of a fault in reading a page of the transaction's own that was
// recovered as a panic; nil if it was another panic. byWriting: another process may have
// written to it.
func (w *WriteTx) Fault(recovered any) (fault *page.CorruptError, byWriting bool) {
	if w.stream == nil {
		return nil, false
	}
	for i := range w.stream.own.views {
		image := &w.stream.own.views[i].image
		if fault = image.Fault(recovered); fault != nil {
			return fault, image.WriteFault(recovered)
		}
	}
	return nil, false
}

// Forget says that nothing is used any more of what the transaction has read of its own
// pages: those that it has given up can be taken again.
func (s *Stream) Forget() error {
	p := s.w.p
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	s.own.file, s.own.memory = false, false
	if s.async != nil {
		s.async.lent = false
	}
	return s.fail(s.free())
}
