package differential

import (
	"fmt"
	"math/rand/v2"

	"holdfast/test/stock/ops"
)

const maxKeySize = 32768

// bytesOfNoise are the values that histories put, or parts of them.
var bytesOfNoise = func() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}()

// History makes up operations. Each depends on the seed and on those before it
// alone.
type History struct {
	Seed uint64

	rand  *rand.Rand
	model *model

	// Stock leaves out what bbolt does otherwise on purpose; see the package.
	Stock bool

	page     int // page size
	universe int // number of different keys
	bulk     int // largest number of keys put one after the other
	large    int // one in so many values is large
	nextTx   int
	writer   int // number of the writing transaction, 0 if there is none
	readers  []int
	queue    []ops.Op // operations that follow
}

// New is the history that seed stands for, on a file with pages of pageSize.
func New(seed uint64, pageSize int) *History {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	return &History{
		Seed:     seed,
		rand:     r,
		model:    newModel(),
		page:     pageSize,
		universe: []int{30, 300, 3000}[r.IntN(3)],
		bulk:     []int{10, 100, 600}[r.IntN(3)],
		large:    []int{5, 40, 400}[r.IntN(3)],
	}
}

func (h *History) chance(oneIn int) bool { return h.rand.IntN(oneIn) == 0 }

// apply gives the result that op has to have.
func (h *History) apply(op ops.Op) ops.Result { return h.model.do(op) }

// begin is an operation that begins a transaction.
func (h *History) begin(writable bool) ops.Op {
	h.nextTx++
	if writable {
		h.writer = h.nextTx
	} else {
		h.readers = append(h.readers, h.nextTx)
	}
	return ops.Op{Kind: ops.Begin, Tx: h.nextTx, Writable: writable}
}

// endWriter ends the writing transaction, one way or the other.
func (h *History) endWriter() ops.Op {
	op := ops.Op{Kind: ops.Commit, Tx: h.writer}
	if h.chance(6) {
		op.Kind = ops.Rollback
	}
	h.writer = 0
	return op
}

// endReader ends the i-th open reading transaction.
func (h *History) endReader(i int) ops.Op {
	tx := h.readers[i]
	h.readers = append(h.readers[:i], h.readers[i+1:]...)
	return ops.Op{Kind: ops.Rollback, Tx: tx}
}

// key is the i-th key of the universe, always the same.
func (h *History) key(i int) []byte {
	r := rand.New(rand.NewPCG(h.Seed, uint64(i)))
	size := 1 + r.IntN(24)
	switch {
	case i%97 == 13:
		size = min(h.page/2+r.IntN(3*h.page), maxKeySize)
	case i%23 == 7:
		size = 100 + r.IntN(500)
	case i%5 == 0:
		return fmt.Appendf(nil, "key%08d", i)
	case i%11 == 0:
		size = 1
	}
	k := make([]byte, size)
	for j := range k {
		k[j] = byte(r.Uint32())
	}
	if i%3 == 0 && size > 4 {
		copy(k, "pre")
	}
	return k
}

func (h *History) anyKey() []byte { return h.key(h.rand.IntN(h.universe)) }

// aKeyOf is mostly a key of the bucket b.
func (h *History) aKeyOf(b *node) []byte {
	if len(b.keys) == 0 || h.chance(8) {
		return h.anyKey()
	}
	return []byte(b.keys[h.rand.IntN(len(b.keys))])
}

func (h *History) value() []byte {
	size := 0
	switch n := h.rand.IntN(20); {
	case n == 0:
	case n < 13:
		size = h.rand.IntN(64)
	case n < 18:
		size = h.rand.IntN(1000)
	default:
		size = h.rand.IntN(h.page)
	}
	if h.chance(h.large) {
		size = h.rand.IntN(10 * h.page)
	}
	from := h.rand.IntN(len(bytesOfNoise) - size)
	return bytesOfNoise[from : from+size : from+size]
}

// path is the path to some bucket of the tree below root, perhaps root itself.
func (h *History) path(root *node) (path []string, b *node) {
	b = root
	for len(b.buckets) > 0 && len(path) < 6 && (len(path) == 0 && !h.chance(12) || h.chance(2)) {
		name := b.buckets[h.rand.IntN(len(b.buckets))]
		path = append(path, name)
		b = b.entries[name].child
	}
	return path, b
}

// Next is the next operation of the transaction tx.
func (h *History) next(tx int) ops.Op {
	if len(h.queue) > 0 {
		op := h.queue[0]
		h.queue = h.queue[1:]
		return op
	}
	t := h.model.txs[tx]
	if h.chance(3) {
		return h.read(tx, t)
	}
	if !t.writable && !h.chance(20) {
		return h.read(tx, t)
	}
	return h.write(tx, t)
}

func (h *History) read(tx int, t *transaction) ops.Op {
	path, b := h.path(t.root)
	op := ops.Op{Tx: tx, Path: path}
	switch n := h.rand.IntN(20); {
	case n < 4 && len(path) > 0:
		op.Kind, op.Key = ops.Get, h.aKeyOf(b)
	case n < 5 && len(path) > 0:
		op.Kind = ops.Sequence
	case n < 6:
		op.Kind = ops.ForEach
	case n < 7:
		op.Kind = ops.ForEachBucket
	case n < 8 && h.chance(8):
		return h.dump(tx)
	case n < 9 && h.chance(2):
		op.Kind = ops.Inspect
	case n < 10 && len(path) > 0 && !t.writable:
		op.Kind = ops.BucketStats
	case n < 14 || len(t.cursors) == 0:
		op.Kind, op.Cursor = ops.NewCursor, h.rand.IntN(4)
		h.queue = append(h.queue, h.placeCursor(tx, op.Cursor, b))
	default:
		return h.walk(tx, t)
	}
	return op
}

// dump shows all content. Where bbolt may not end, going backward, it is shown
// forward alone.
func (h *History) dump(tx int) ops.Op {
	op := ops.Op{Kind: ops.Dump, Tx: tx}
	if h.Stock && h.model.txs[tx].writable {
		op.N = ops.ForwardOnly
	}
	return op
}

// placeCursor puts the cursor, which is over b, somewhere.
func (h *History) placeCursor(tx, c int, b *node) ops.Op {
	op := ops.Op{Tx: tx, Cursor: c, Kind: ops.Seek}
	switch h.rand.IntN(4) {
	case 0:
		op.Kind = ops.First
	case 1:
		op.Kind = ops.Last
		if h.Stock && b.thinned {
			op.Kind = ops.First
		}
	default:
		op.Key = h.aKeyOf(b)
		if h.chance(3) && len(op.Key) > 1 {
			op.Key = op.Key[:1+h.rand.IntN(len(op.Key)-1)]
		}
		if h.chance(20) {
			op.Key = nil
		}
	}
	return op
}

// walk moves one of the cursors.
func (h *History) walk(tx int, t *transaction) ops.Op {
	i := h.rand.IntN(4)
	c := t.cursors[i]
	for c == nil {
		i = (i + 1) % 4
		c = t.cursors[i]
	}
	if !c.placed || h.Stock && (c.stale() || c.ended && c.n.thinned || !c.on) || h.chance(10) {
		return h.placeCursor(tx, i, c.n)
	}
	op := ops.Op{Tx: tx, Cursor: i, Kind: ops.Next}
	if h.chance(3) && !(h.Stock && c.n.thinned) {
		op.Kind = ops.Prev
	}
	if t.writable && h.chance(5) {
		op.Kind = ops.CursorDelete
		if !h.Stock {
			h.queue = append(h.queue, ops.Op{Tx: tx, Cursor: i, Kind: ops.Next})
		}
		return op
	}
	for range h.rand.IntN(6) {
		h.queue = append(h.queue, op)
	}
	return op
}

// nilPut tells whether op shows the value of a key that its own transaction put
// with a nil value.
func (h *History) nilPut(op ops.Op) bool {
	t := h.model.txs[op.Tx]
	if t == nil || !t.writable {
		return false
	}
	return op.Kind == ops.Get || op.Kind >= ops.First
}
