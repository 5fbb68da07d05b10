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
	marks    *page.Marks    // of values in the file; nil: there are none
	states   int
	newest   bool
}

// Bounds on the room that is mapped ahead of the file, in bytes, so that
// generations are rare. Address space is all that it costs.
const (
	minRoom = 32 << 20
	maxRoom = 1 << 30
)

// smallAddressSpace says that the old generation and the new one of a large file do not both
// fit. So a file of more than reserveFrom bytes is mapped with all the room that it can ever
// need, once, when the generations before are short still, if at least leftFree bytes in one
// piece are left for the program.
const (
	smallAddressSpace = math.MaxInt == math.MaxInt32

	reserveFrom = 256 << 20
	reserved    = math.MaxInt32 &^ (mapAlign - 1)
	leftFree    = 256 << 20
)

// mapAlign divides the length of mappings with room.
const mapAlign = 1 << 16

// mapLength is the length of a new mapping of a file of size bytes.
func (p *Pager) mapLength(size int64) int64 {
	if !p.file.MapBeyondEnd() {
		return size
	}
	room := min(max(size, minRoom), maxRoom)
	if smallAddressSpace && size > reserveFrom { // there was no more, see reserve
		room = minRoom
	}
	length := max(size+room, p.opts.InitialMap)
	if length > math.MaxInt {
		length = size
	}
	return (length + mapAlign - 1) / mapAlign * mapAlign
}

// mapFile maps the file, with room if there is address space for it.
func (p *Pager) mapFile() (vfs.Mapping, error) {
	opts := vfs.MapOptions{Flags: p.opts.MapFlags, ReadAhead: p.opts.ReadAhead}
	if smallAddressSpace && p.fileSize > reserveFrom && p.file.MapBeyondEnd() {
		if m := p.reserve(opts); m != nil {
			return m, nil
		}
	}
	m, err := p.file.Map(p.mapLength(p.fileSize), opts)
	if err != nil { // perhaps for want of address space: without room, then
		m, err = p.file.Map(p.fileSize, opts)
	}
	return m, err
}

// reserve maps the file with all the room that it can ever need; nil if there is not so much
// address space, or little would be left.
func (p *Pager) reserve(opts vfs.MapOptions) vfs.Mapping {
	m, err := p.file.Map(reserved, opts)
	if err != nil {
		return nil
	}
	left, err := p.file.Map(leftFree, vfs.MapOptions{})
	if err == nil {
		err = left.Close()
	}
	if err != nil {
		_ = m.Close()
		return nil
	}
	return m
}

// remap makes a generation in which need bytes of the file can be read the
// newest. Readers are neither waited for nor disturbed.
func (p *Pager) remap(need int64) error {
	if p.gen != nil && int64(len(p.gen.mapping.Data())) >= need {
		return p.lockMapping(p.gen.mapping)
	}
	m, err := p.mapFile()
	if err != nil {
		return err
	}
	if err := p.lockMapping(m); err != nil {
		_ = m.Close()
		return err
	}
	old := p.gen
	p.gen = &generation{mapping: m, newest: true}
	if p.foreign == nil { // it is written elsewhere: see State.Mark
		p.gen.marks = &p.marks
	}
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
// is not held any more.
func (p *Pager) retire(s *State) {
	if p.draining { // by Close, which waits for readers without the lock
		p.pipeline.Lock()
		defer p.pipeline.Unlock()
	}
	if p.space != nil {
		p.space.Unpin(s.Tx)
	}
	s.gen.states--
	if err := s.gen.closeIfUnused(); err != nil {
		p.logf("unmap %s: %v", p.file.Name(), err)
	}
}
