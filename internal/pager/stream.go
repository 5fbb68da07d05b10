package pager

import (
	"errors"

	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// Stream gives pages to what a transaction builds beside the tree that is there, such
// as a compacted copy. It implements tree.Writer. The pages lie one behind the other,
// and are written to the file before the transaction is prepared, so that not all of
// them need be in memory.
//
// Nothing refers to such pages until the transaction's meta is written, and they were
// free for it as they would be when a group is written: none is of the newest durable
// state, of that of the winning slot's v2 meta, or of a reader's (I1, I11). So a crash, an
// error or a rollback in between leaves garbage in free pages, as one amid the pages of a
// group does. To keep the argument that short, what was committed before is made durable, and
// the winner's meta plain, before the first of them is written: nothing trailing lists
// pages then. The commit flushes them before it writes its meta, which is plain too (I4):
// they are in no list that an opening could judge by.
//
// The caller has the turn all the time, so nobody else is prepared; writing takes the
// lead, so nobody else writes, and nothing is written once a flush has failed (A4).
type Stream struct {
	w     *WriteTx
	opts  CommitOptions // with which the transaction will be prepared
	limit int64         // bytes from which on what is complete is written
	held  int64         // bytes that are not
	begun bool          // something was
}

// Stream makes a Stream that has about limit bytes of pages in memory.
func (w *WriteTx) Stream(limit int64, opts CommitOptions) *Stream {
	return &Stream{w: w, limit: limit, opts: opts}
}

// PageSize is the size of a page in bytes.
func (s *Stream) PageSize() int { return s.w.PageSize() }

// Page returns a page of the state that the transaction began with.
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
	w := s.w
	w.p.commit.Lock()
	id, err := w.space.Allocate(n)
	w.p.commit.Unlock()
	if err != nil {
		return 0, nil, err
	}
	buf := w.p.buffers.get(w.buf, n)
	w.buf.runs = append(w.buf.runs, run{id: id, by: w.tx, buffer: buf})
	s.held += int64(len(buf.bytes))
	return id, buf.bytes, nil
}

// write writes the page runs that the transaction holds, and gives their memory back.
func (s *Stream) write() error {
	w := s.w
	if !s.begun {
		if err := s.settle(); err != nil {
			return err
		}
		s.begun = true
	}
	p := w.p
	p.commit.Lock()
	defer p.commit.Unlock()
	for p.leading {
		p.idle.Wait()
	}
	if err := s.room(); err != nil {
		p.noRoom = p.noRoom || vfs.IsFull(err) || errors.Is(err, ErrMaxSizeReached)
		w.doomed = err
		return err
	}
	w.early = true
	p.leading = true
	p.commit.Unlock()
	sortRuns(w.buf.runs)
	sealRuns(w.buf.runs)
	_, err := p.writeRuns(w.buf.runs)
	p.buffers.reuse(w.buf)
	s.held = 0
	p.commit.Lock()
	p.passOn()
	if err != nil {
		p.noRoom = p.noRoom || vfs.IsFull(err)
		w.doomed = err
	}
	return err
}

// settle makes what the transaction stands on durable, and its meta plain, unless the
// transaction itself need not be.
func (s *Stream) settle() error {
	if err := s.w.WaitForBase(); err != nil || s.opts.Mode == None {
		return err
	}
	return s.w.p.Sync()
}

// room makes the file long enough for what was allocated, as prepare does. The caller
// holds commit, and nobody leads.
func (s *Stream) room() error {
	w := s.w
	if w.doomed != nil {
		return w.doomed
	}
	if err := w.p.stoppedBy(); err != nil {
		return err
	}
	if err := w.p.checkLength(); err != nil { // nobody could tell behind a longer one
		return err
	}
	return w.p.grow(int64(w.space.HighWater())*int64(w.p.pageSize), s.opts)
}
