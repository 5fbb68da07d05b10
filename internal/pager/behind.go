package pager

import (
	"fmt"

	"holdfast/internal/page"
)

// behind is how a Stream writes while its caller goes on: when enough is held, a goroutine
// seals and writes it, and the caller fills other buffers. It makes two processors of use
// where the caller has work of its own, such as hashing what it appends.
//
// There is one flight at a time, and it has the lead from before it takes off until all
// is written. So nobody else writes meanwhile, and what the Stream writes is written in
// the order in which it would be without. Whoever needs the flight to have ended, lands it:
//
//   - the next write, so that two sets of buffers are enough;
//   - reading a page that is not in memory: it may be in flight;
//   - the end of the edit, a rollback: nothing is prepared before all is in the file, and
//     no page is free for others while a flight may write to it.
//
// What the caller may do without landing: take pages (none that is in flight is free before
// the edit has ended, or it is written again by a later flight), fill buffers, and keep
// on looking at what it has read in buffers that are in flight, which nobody changes but
// for their seals.
type behind struct {
	fly    func() // write, made once, since each use of a method as a value allocates
	done   chan error
	flying bool
	buf    *buffers // in flight; else empty ones
	sum    page.Sum // of what is in flight
	lent   bool     // somebody may look at what is in flight until the transaction ends
}

// WriteBehind has what is complete written by a goroutine while the caller goes on. It is
// called before anything is allocated. What is held in memory is twice the Stream's limit
// then.
func (s *Stream) WriteBehind() {
	s.behind = &behind{done: make(chan error, 1), buf: s.w.p.buffers.take()}
	s.behind.fly = s.writeFlight
}

// takeOff writes what is held, behind the caller. The caller of takeOff has the lead,
// which it has no more afterwards.
func (s *Stream) takeOff() {
	b := s.behind
	s.w.buf, b.buf = b.buf, s.w.buf
	b.lent, s.own.memory = s.own.memory, false
	b.flying = true
	go b.fly()
}

// writeFlight is the goroutine.
func (s *Stream) writeFlight() {
	p := s.w.p
	sortRuns(s.behind.buf.runs)
	sealRuns(s.behind.buf.runs)
	s.behind.sum = p.sumOf(s.behind.buf.runs)
	_, err := p.writeRuns(s.behind.buf.runs)
	p.commit.Lock()
	p.commit.HandOff()
	p.commit.Unlock()
	s.behind.done <- err
}

// land waits until what is in flight is in the file, and returns the error of that. It may
// be called of a Stream that has nothing in flight, and must not by who holds commit.
func (s *Stream) land() error {
	b := s.behind
	if b == nil || !b.flying {
		return nil
	}
	err := <-b.done
	b.flying = false
	s.w.sum.AddSum(b.sum)
	if b.lent {
		b.buf.forget()
	}
	p := s.w.p
	p.buffers.reuse(b.buf)
	p.commit.Lock()
	defer p.commit.Unlock()
	return s.fail(err)
}

// end is called when the transaction ends, and nothing is in flight. The caller holds
// commit.
func (s *Stream) end() {
	s.own.release(s.w.p)
	if s.behind != nil {
		s.w.p.buffers.put(s.behind.buf)
		s.behind = nil
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
