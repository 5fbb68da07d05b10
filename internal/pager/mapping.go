package pager

import (
	"math"

	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// generation is one mapping of the file. States refer to it; when the last of
// them is retired and a newer generation exists, it is unmapped. Only the
// writer counts.
type generation struct {
	mapping  vfs.Mapping
	verified *page.Verified // the seals of its pages; nil: they are not verified
	states   int
	newest   bool
}

// Bounds on the room that is mapped ahead of the file, in bytes, so that
// generations are rare. Address space is all that it costs.
const (
	minRoom = 32 << 20
	maxRoom = 1 << 30
)

// smallAddressSpace says that address space is too dear for much room.
const smallAddressSpace = math.MaxInt == math.MaxInt32

// mapLength is the length of a new mapping of a file of size bytes.
func (p *Pager) mapLength(size int64) int64 {
	if !p.file.MapBeyondEnd() {
		return size
	}
	room := min(max(size, minRoom), maxRoom)
	if smallAddressSpace {
		room = min(room, minRoom)
	}
	length := max(size+room, p.opts.InitialMap)
	if length > math.MaxInt {
		length = size
	}
	const align = 1 << 16
	return (length + align - 1) / align * align
}

// remap makes a generation in which need bytes of the file can be read the
// newest. Readers are neither waited for nor disturbed.
func (p *Pager) remap(need int64) error {
	if p.gen != nil && int64(len(p.gen.mapping.Data())) >= need {
		return p.lockMapping(p.gen.mapping)
	}
	opts := vfs.MapOptions{Flags: p.opts.MapFlags, ReadAhead: p.opts.ReadAhead}
	m, err := p.file.Map(p.mapLength(p.fileSize), opts)
	if err != nil { // perhaps for want of address space: without room, then
		if m, err = p.file.Map(p.fileSize, opts); err != nil {
			return err
		}
	}
	if err := p.lockMapping(m); err != nil {
		_ = m.Close()
		return err
	}
	old := p.gen
	p.gen = &generation{mapping: m, newest: true}
	p.rememberSeals(old)
	if old != nil {
		old.newest = false
		return old.closeIfUnused()
	}
	return nil
}

func (p *Pager) lockMapping(m vfs.Mapping) error {
	if !p.opts.Lock {
		return nil
	}
	return m.Lock(min(p.fileSize, int64(len(m.Data()))))
}

func (g *generation) closeIfUnused() error {
	if g.states > 0 || g.newest {
		return nil
	}
	return g.mapping.Close()
}

// retire is called by the epoch, with commit held except by Close, for a state that
// nobody holds any more.
func (p *Pager) retire(s *State) {
	if p.draining { // by Close, which waits for readers without the lock
		p.commit.Lock()
		defer p.commit.Unlock()
	}
	if p.space != nil {
		p.space.Unpin(s.Tx)
	}
	s.gen.states--
	if err := s.gen.closeIfUnused(); err != nil {
		p.logf("unmap %s: %v", p.file.Name(), err)
	}
}
