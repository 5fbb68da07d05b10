package pager

import (
	"cmp"
	"slices"
	"sync"

	"holdfast/internal/page"
)

// Page buffers are reserved in pieces, slabs. Consecutive allocations lie next to
// each other in one, so that a commit writes them with few buffers. The first slab
// of a transaction is small: many small transactions may be prepared at once.
const (
	slabBytes      = 256 << 10
	smallSlabBytes = 32 << 10
)

// Bounds of the slabs kept for later commits: 8 MiB of each size.
const (
	maxIdleSlabs      = 32
	maxIdleSmallSlabs = 256
)

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
	end   int       // of its content, after which the seal goes; 0: it is not sealed
	until page.TxID // the prepared transaction that freed it; 0 if none has
	// record: it is a part of a record of free pages, and in no tree.
	record bool
	buffer
}

// contentEnd is from where on all is zero, but for a seal.
func (r *run) contentEnd() int {
	if r.end > 0 {
		return r.end
	}
	return len(r.bytes)
}

// sortRuns puts runs in file order, in which they are searched and written.
func sortRuns(runs []run) {
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.id, b.id) })
}

// slab is named by its address.
type slab struct{ bytes []byte }

// bufferPool hands out slabs. Safe for concurrent use.
type bufferPool struct {
	pageSize int
	mu       sync.Mutex
	idle     []*slab
	small    []*slab
	idleBufs []*buffers
}

// maxIdleBuffers is the number of transactions whose lists are kept.
const maxIdleBuffers = 128

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

// follows tells whether b lies directly after a, so that a's bytes can be
// extended over it.
func (b *buffer) follows(a *buffer) bool {
	return b.slab != nil && b.slab == a.slab && b.at == a.at+len(a.bytes)
}

// pooled tells whether n pages get memory that is used again.
func (p *bufferPool) pooled(n uint64) bool { return n <= uint64(slabBytes/4/p.pageSize) }

// forget leaves the memory to those who look at it.
func (b *buffers) forget() {
	clear(b.slabs)
	b.slabs = b.slabs[:0]
}

// get returns n pages, of any content.
func (p *bufferPool) get(b *buffers, n uint64) buffer {
	size := int(n) * p.pageSize
	if !p.pooled(n) {
		return buffer{bytes: make([]byte, size)}
	}
	last := len(b.slabs) - 1
	if last < 0 || b.used+size > len(b.slabs[last].bytes) {
		b.slabs = append(b.slabs, p.slab(last < 0 && size <= smallSlabBytes))
		b.used = 0
		last++
	}
	s := b.slabs[last]
	at := b.used
	b.used += size
	return buffer{bytes: s.bytes[at : at+size], slab: s, at: at}
}

func (p *bufferPool) slab(small bool) *slab {
	p.mu.Lock()
	defer p.mu.Unlock()
	idle, size := &p.idle, slabBytes
	if small {
		idle, size = &p.small, smallSlabBytes
	}
	if last := len(*idle) - 1; last >= 0 {
		s := (*idle)[last]
		(*idle)[last] = nil
		*idle = (*idle)[:last]
		return s
	}
	return &slab{make([]byte, size)}
}

// put takes the buffers back; they must not be used any more.
func (p *bufferPool) put(b *buffers) {
	p.reuse(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	if cap(b.runs) <= maxIdleRuns && len(p.idleBufs) < maxIdleBuffers {
		p.idleBufs = append(p.idleBufs, b)
	}
}

// reuse takes the memory of the page runs back, of which b has none then.
func (p *bufferPool) reuse(b *buffers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range b.slabs {
		switch small := len(s.bytes) == smallSlabBytes; {
		case small && len(p.small) < maxIdleSmallSlabs:
			p.small = append(p.small, s)
		case !small && len(p.idle) < maxIdleSlabs:
			p.idle = append(p.idle, s)
		}
	}
	clear(b.slabs)
	clear(b.runs)
	b.slabs, b.runs, b.used = b.slabs[:0], b.runs[:0], 0
}
