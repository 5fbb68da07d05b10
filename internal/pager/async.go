package pager

import (
	"fmt"

	"holdfast/internal/page"
)

// asyncWriter writes for a Stream while its caller goes on: when enough is held, a goroutine
// seals and writes it, and the caller fills other buffers. It makes two processors of use
// where the caller has work of its own, such as hashing what it appends.
//
// One set of buffers is in flight at a time, and the Stream is the leader from before that begins
// until all is written. So nothing else is written meanwhile, and what the Stream writes is written
// in the order in which it would be without. These wait until the flight has ended (await):
//
//   - the next write, so that two sets of buffers are enough;
//   - reading a page that is not in memory: it may be in flight;
//   - the end of the edit, a rollback: nothing is prepared before all is in the file, and
//     no page is free for others while a flight may write to it.
//
// Without waiting the caller may take pages (none that is in flight is free before the edit has
// ended, or it is written again by a later flight), fill buffers, and keep on looking at what it
// has read in buffers that are in flight, in which only their seals change.
type asyncWriter struct {
	write    func() // writeFlight, made once, since each use of a method as a value allocates
	done     chan error
	inFlight bool
	buf      *buffers // in flight; else empty ones
	sum      page.Sum // of what is in flight
	lent     bool     // the caller may look at what is in flight until the transaction ends
}

// WriteBehind has what is complete written by a goroutine while the caller goes on. It is
// called before anything is allocated. What is held in memory is twice the Stream's limit
// then.
func (s *Stream) WriteBehind() {
	s.async = &asyncWriter{done: make(chan error, 1), buf: s.w.p.buffers.take()}
	s.async.write = s.writeFlight
}

// startFlight begins to write what is held, and returns. The caller is the leader, and is not any
// more afterwards: the goroutine is.
func (s *Stream) startFlight() {
	b := s.async
	s.w.buf, b.buf = b.buf, s.w.buf
	b.lent, s.own.memory = s.own.memory, false
	b.inFlight = true
	go b.write()
}

// writeFlight is the goroutine.
func (s *Stream) writeFlight() {
	p := s.w.p
	sortRuns(s.async.buf.runs)
	sealRuns(s.async.buf.runs)
	s.async.sum = p.sumOf(s.async.buf.runs)
	_, err := p.writeRuns(s.async.buf.runs)
	p.pipeline.Lock()
	p.pipeline.HandOff()
	p.pipeline.Unlock()
	s.async.done <- err
}

// await returns when what is in flight is in the file, with the error of that. The Stream
// may have nothing in flight. The caller must not hold the pipeline's lock.
func (s *Stream) await() error {
	b := s.async
	if b == nil || !b.inFlight {
		return nil
	}
	err := <-b.done
	b.inFlight = false
	s.w.sum.AddSum(b.sum)
	if b.lent {
		b.buf.forget()
	}
	p := s.w.p
	p.buffers.reuse(b.buf)
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	return s.fail(err)
}

// end is called when the transaction ends, and nothing is in flight. The caller holds
// commit.
func (s *Stream) end() {
	s.own.release(s.w.p)
	if s.async != nil {
		s.w.p.buffers.put(s.async.buf)
		s.async = nil
	}
}

// bufferLeaf is WriteLeaf into memory: of long values too, since copying them takes less of
// the caller's time than writing them.
func (s *Stream) bufferLeaf(key, value []byte, pages uint64, sealed bool) (page.ID, uint64, error) {
	id, buf, err := s.Allocate(pages, false)
	if err != nil {
		return 0, 0, fmt.Errorf("allocate %d pages: %w", pages, err)
	}
	leaf := page.NewLeaf(buf, id, 1, uint32(pages-1))
	leaf.Leaf(0, key, value)
	if end := leaf.End(); sealed {
		s.Seal(end)
	}
	return id, pages, nil
}
