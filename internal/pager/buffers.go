package pager

import (
	"cmp"
	"slices"
	"sync"

	"holdfast/internal/page"
)

// slabBytes is the size of the pieces in which page buffers are reserved.
// Consecutive allocations lie next to each other in one, so that a commit
// writes them with few buffers.
const slabBytes = 256 << 10

// maxIdleSlabs bounds the slabs kept for later commits: 8 MiB.
const maxIdleSlabs = 32

// maxIdleRuns bounds the length of the list of runs kept for later commits.
const maxIdleRuns = 4096

// buffers are the page runs of one transaction and the memory that they lie in.
type buffers struct {
	runs  []run
	slabs []*slab
	used  int // bytes of the last slab
}

// run is a page run to be written.
type run struct {
	id    page.ID
	by    page.TxID // who wrote it
	until page.TxID // the prepared transaction that freed it; 0 if none has
	buffer
}

// sortRuns puts runs in file order, in which they are searched and written.
func sortRuns(runs []run) {
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.id, b.id) })
}

type slab [slabBytes]byte

// bufferPool hands out slabs. Safe for concurrent use.
type bufferPool struct {
	pageSize int
	mu       sync.Mutex
	idle     []*slab
	idleBufs []*buffers
}

// maxIdleBuffers is the number of transactions whose lists are kept.
const maxIdleBuffers = 4

// take gives the empty buffers of a new transaction.
func (p *bufferPool) take() *buffers {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idleBufs) - 1; last >= 0 {
		b := p.idleBufs[last]
		p.idleBufs = p.idleBufs[:last]
		return b
	}
	return new(buffers)
}

// buffer is some pages of memory, and where in a slab it lies.
type buffer struct {
	bytes []byte
	slab  *slab // nil: memory of its own
	at    int
}

// follows tells whether b lies directly behind a, so that a's bytes can be
// extended over it.
func (b *buffer) follows(a *buffer) bool {
	return b.slab != nil && b.slab == a.slab && b.at == a.at+len(a.bytes)
}

// get returns n pages, of any content.
func (p *bufferPool) get(b *buffers, n uint64) buffer {
	size := int(n) * p.pageSize
	if size > slabBytes/4 {
		return buffer{bytes: make([]byte, size)}
	}
	if len(b.slabs) == 0 || b.used+size > slabBytes {
		b.slabs = append(b.slabs, p.slab())
		b.used = 0
	}
	s := b.slabs[len(b.slabs)-1]
	at := b.used
	b.used += size
	return buffer{bytes: s[at : at+size], slab: s, at: at}
}

func (p *bufferPool) slab() *slab {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		s := p.idle[last]
		p.idle[last] = nil
		p.idle = p.idle[:last]
		return s
	}
	return new(slab)
}

// put takes the buffers back; nobody may use them any more.
func (p *bufferPool) put(b *buffers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range b.slabs {
		if len(p.idle) < maxIdleSlabs {
			p.idle = append(p.idle, s)
		}
	}
	clear(b.slabs)
	clear(b.runs)
	b.slabs, b.runs, b.used = b.slabs[:0], b.runs[:0], 0
	if cap(b.runs) <= maxIdleRuns && len(p.idleBufs) < maxIdleBuffers {
		p.idleBufs = append(p.idleBufs, b)
	}
}
