package pager

import (
	"errors"
	"fmt"

	"holdfast/internal/page"
)

// Stream gives pages to what a transaction builds next to the tree that is there, such
// as a compacted copy, or what it appends. It implements tree.Writer and tree.Appender. The
// pages are written to the file before the transaction is prepared, so that not all of
// them need be in memory.
//
// Nothing refers to such pages until the transaction's meta is written, and they were
// free for it as they would be when a group is written: none is of the newest durable
// state, of that of the winning slot's v2 meta, or of a reader's (I1, I6). So a crash, an
// error or a rollback in between leaves garbage in free pages, as one amid the pages of a
// group does. To keep the argument that short, what was committed before is made durable, and
// the winner's meta plain, before the first of them is written: nothing trailing lists
// pages then. The commit flushes them before it writes its meta, which is plain too (I4):
// they are in no list by which an opening could tell.
//
// The caller has the writer lock all the time, so nothing else is prepared; writing makes it the
// leader, so nothing else is written, and nothing is written once a flush has failed (A4).
//
// The transaction can read its pages, and give them up again (ownpages.go).
type Stream struct {
	w     *WriteTx
	opts  CommitOptions // with which the transaction will be prepared
	limit int64         // bytes from which on what is complete is written
	held  int64         // bytes that are not
	spare bool          // flush at the beginning only what is not durable
	begun bool          // something was written, or is about to be
	err   error         // why nothing more is
	own   own
	lone  loneLeaf

	async *asyncWriter // nil: the caller waits for what is written
}

// Stream makes the transaction's Stream, which has about limit bytes of pages in
// memory. A transaction has one at most.
func (w *WriteTx) Stream(limit int64, opts CommitOptions) *Stream {
	w.stream = &Stream{w: w, limit: limit, opts: opts}
	return w.stream
}

// Appender is a Stream that flushes nothing at its beginning if all is durable and
// plain.
func (w *WriteTx) Appender(limit int64, opts CommitOptions) *Stream {
	s := w.Stream(limit, opts)
	s.spare = true
	return s
}

// Err is why the transaction cannot be committed: that pages could not be had, or not
// be written.
func (s *Stream) Err() error { return s.err }

// PageSize is the size of a page in bytes.
func (s *Stream) PageSize() int { return s.w.PageSize() }

// Page returns a page of the state that the transaction began with, or one of its own.
func (s *Stream) Page(id page.ID) (page.Page, error) { return s.w.Page(id) }

// Verify is the transaction's.
func (s *Stream) Verify(p page.Page) (page.Page, error) { return s.w.Verify(p) }

// Free is the transaction's.
func (s *Stream) Free(id page.ID, n uint64) error { return s.w.Free(id, n) }

// Seal is the transaction's.
func (s *Stream) Seal(end int) { s.w.Seal(end) }

// Allocate reserves n pages, the first that are free, and the buffer that is written to
// them. What was allocated before is complete now, and may be written: an error can be
// of that, and the transaction cannot be committed then.
func (s *Stream) Allocate(n uint64, _ bool) (page.ID, []byte, error) {
	if s.held >= s.limit {
		if err := s.write(); err != nil {
			return 0, nil, err
		}
	}
	id, err := s.take(n)
	if err != nil {
		return 0, nil, err
	}
	w := s.w
	buf := w.p.buffers.get(w.buf, n)
	s.own.buffer(id, len(w.buf.runs))
	w.buf.runs = append(w.buf.runs, run{id: id, by: w.tx, buffer: buf})
	s.held += int64(len(buf.bytes))
	return id, buf.bytes, nil
}

// take reserves n pages.
func (s *Stream) take(n uint64) (page.ID, error) {
	w := s.w
	w.p.pipeline.Lock()
	defer w.p.pipeline.Unlock()
	id, err := w.space.Allocate(n)
	return id, s.fail(err)
}

// fail dooms the transaction if err is not nil. The caller holds the pipeline's lock.
func (s *Stream) fail(err error) error {
	if err != nil {
		p := s.w.p
		p.noRoom = p.noRoom || isFull(err)
		s.w.doomed, s.err = err, err
	}
	return err
}

// write writes the page runs that the transaction holds, and gives their memory back.
func (s *Stream) write() error {
	if err := s.lead(); err != nil {
		return err
	}
	w := s.w
	s.own.drop(w.buf)
	if s.held = 0; s.async != nil {
		s.startFlight()
		return nil
	}
	sortRuns(w.buf.runs)
	sealRuns(w.buf.runs)
	w.sum.AddSum(w.p.sumOf(w.buf.runs))
	_, err := w.p.writeRuns(w.buf.runs)
	s.own.written(w.buf)
	w.p.buffers.reuse(w.buf)
	return s.handOff(err)
}

// lead makes the caller the leader for a write, and makes the file long enough for all that was
// reserved. After an error there is nothing to follow.
func (s *Stream) lead() error {
	w := s.w
	p := w.p
	if s.err != nil {
		return s.err
	}
	if err := s.await(); err != nil {
		return err
	}
	if !s.begun {
		if err := s.makePlain(); err != nil {
			s.err = err
			return err
		}
		s.begun = true
	}
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	p.pipeline.Lead()
	if err := s.room(); err != nil {
		p.pipeline.HandOff()
		return s.fail(err)
	}
	w.early = true
	s.own.hold(p, w.space.HighWater())
	return nil
}

// handOff hands off after a write, whose error it returns.
func (s *Stream) handOff(err error) error {
	p := s.w.p
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	p.pipeline.HandOff()
	return s.fail(err)
}

// makePlain makes what the transaction stands on durable, and its meta plain, unless the
// transaction itself need not be.
func (s *Stream) makePlain() error {
	if err := s.w.WaitForBase(); err != nil || s.opts.Mode == None {
		return err
	}
	p := s.w.p
	if s.spare {
		p.pipeline.Lock()
		settled := !p.trailing && p.visible == nil && p.unsynced == 0
		p.pipeline.Unlock()
		if settled { // and stays so: others commit nothing while we have the writer lock
			return nil
		}
	}
	return p.Sync()
}

// room makes the file long enough for what was allocated, as prepare does. The caller
// holds the pipeline's lock, and leads.
func (s *Stream) room() error {
	w := s.w
	if w.doomed != nil {
		return w.doomed
	}
	if err := w.p.stoppedBy(); err != nil {
		return err
	}
	if err := w.p.checkLength(); err != nil { // nothing could tell once it is longer
		return err
	}
	return w.p.grow(int64(w.space.HighWater())*int64(w.p.pageSize), s.opts)
}

// loneLeaf is memory for writing a leaf of one element.
type loneLeaf struct {
	head []byte
	tail []byte // a page of zeros, but for its last bytes
	vec  [3][]byte
}

// errLeft is the error of a transaction in which a write was left by a panic.
var errLeft = errors.New("writing a page was left by a panic")

// WriteLeaf makes a leaf that has one element, with key and value, of which it keeps neither,
// and returns where it lies, and how many pages it has. It is written at once, in one
// call and straight from where key and value lie, unless that is done while the caller goes on.
func (s *Stream) WriteLeaf(key, value []byte, sealed bool) (page.ID, uint64, error) {
	p := s.w.p
	pages := page.LoneLeafPages(key, value, p.pageSize)
	if s.async != nil && s.w.p.buffers.pooled(pages) {
		return s.bufferLeaf(key, value, pages, sealed)
	}
	l := &s.lone
	if l.tail == nil {
		l.tail = make([]byte, p.pageSize)
	}
	id, err := s.take(pages)
	if err != nil {
		return 0, 0, err
	}
	// Reading the value for its checksum may fault: not while this is the leader.
	var end int
	l.head, end = page.LoneLeaf(l.head[:0], l.tail, id, key, value, pages, sealed)
	s.w.sum.Add(page.LoneLeafFingerprint(l.head, value, l.tail, end, id))
	if err := s.lead(); err != nil {
		return 0, 0, err
	}
	led := true
	defer func() {
		if clear(l.vec[:]); led {
			_ = s.handOff(errLeft)
		}
	}()
	l.vec = [3][]byte{l.head, value, l.tail[end:]}
	err = p.file.WriteVec(l.vec[:], int64(id)*int64(p.pageSize))
	if p.marks.Written(id, pages); err != nil {
		err = fmt.Errorf("write %d pages: %w", pages, err)
	} else {
		p.counts.Writes.Add(1)
		p.counts.BytesWritten.Add(int64(pages) * int64(p.pageSize))
	}
	led = false
	return id, pages, s.handOff(err)
}

// Owns tells whether the transaction has taken page id.
func (s *Stream) Owns(id page.ID) bool { return s.w.space.Owns(id) }

// Quietly calls read, which keeps nothing of the pages that it reads.
func (s *Stream) Quietly(read func() error) error {
	before := s.own.quiet
	s.own.quiet = true
	defer func() { s.own.quiet = before }()
	return read()
}

// free gives the pages back that were given up. The caller holds the pipeline's lock.
func (s *Stream) free() error {
	for _, e := range s.own.limbo {
		if err := s.w.space.Free(e); err != nil {
			return err
		}
	}
	s.own.limbo = s.own.limbo[:0]
	return nil
}
