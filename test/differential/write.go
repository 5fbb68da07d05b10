package differential

import (
	"bytes"

	"holdfast/test/stock/ops"
)

// write makes up a change in the transaction tx.
func (h *History) write(tx int, t *transaction) ops.Op {
	path, b := h.path(t.root)
	op := ops.Op{Tx: tx, Path: path}
	if len(path) == 0 {
		return h.changeBuckets(op, t, b)
	}
	switch n := h.rand.IntN(30); {
	case n < 12:
		return h.put(op, b)
	case n < 17:
		op.Kind, op.Key = ops.Delete, h.aKeyOf(b)
	case n < 18:
		op.Kind, op.N = ops.SetSequence, h.rand.Uint64()>>h.rand.IntN(64)
	case n < 20:
		op.Kind = ops.NextSequence
	case n < 22:
		return h.putMany(op)
	case n < 24:
		return h.deleteMany(op, b)
	default:
		return h.changeBuckets(op, t, b)
	}
	return op
}

func (h *History) put(op ops.Op, b *node) ops.Op {
	op.Kind, op.Key, op.Value = ops.Put, h.anyKey(), h.value()
	switch h.rand.IntN(100) {
	case 0:
		op.Key = nil
	case 1:
		op.Key = bytesOfNoise[:maxKeySize+1]
	case 2, 3:
		op.Value, op.NilValue = nil, true
	case 4:
		op.Key = bytesOfNoise[:maxKeySize]
	case 5, 6, 7, 8, 9, 10:
		op.Key = h.aKeyOf(b)
	}
	if h.chance(10) {
		op.Fill = []float64{0.05, 0.1, 0.5, 0.9, 1, 2}[h.rand.IntN(6)]
	}
	return op
}

// putMany puts keys that follow each other, or any keys.
func (h *History) putMany(op ops.Op) ops.Op {
	from, scattered := h.rand.IntN(h.universe), h.chance(2)
	small := h.chance(2)
	for i := range 1 + h.rand.IntN(h.bulk) {
		o := op
		o.Kind, o.Key, o.Value = ops.Put, h.key(from+i), h.value()
		if scattered {
			o.Key = h.anyKey()
		}
		if small {
			o.Value = o.Value[:min(len(o.Value), 40)]
		}
		h.queue = append(h.queue, o)
	}
	first := h.queue[0]
	h.queue = h.queue[1:]
	return first
}

// deleteMany deletes a stretch of the bucket, or much of it, or all.
func (h *History) deleteMany(op ops.Op, b *node) ops.Op {
	keys := b.keys
	if len(keys) > 0 && !h.chance(4) {
		from := h.rand.IntN(len(keys))
		keys = keys[from:min(len(keys), from+1+h.rand.IntN(h.bulk))]
	}
	step := 1 + h.rand.IntN(3)
	for i := 0; i < len(keys); i += step {
		o := op
		o.Kind, o.Key = ops.Delete, []byte(keys[i])
		h.queue = append(h.queue, o)
	}
	if len(h.queue) == 0 {
		op.Kind, op.Key = ops.Delete, h.anyKey()
		return op
	}
	first := h.queue[0]
	h.queue = h.queue[1:]
	return first
}

// changeBuckets creates, deletes or moves a bucket in b.
func (h *History) changeBuckets(op ops.Op, t *transaction, b *node) ops.Op {
	op.Key = h.anyKey()
	if len(op.Key) == 0 || h.chance(2) {
		op.Key = []byte("bucket" + string(rune('a'+h.rand.IntN(12))))
	}
	have := b.buckets
	switch n := h.rand.IntN(20); {
	case n < 7 || len(t.root.buckets) == 0:
		op.Kind = ops.CreateBucket
		if h.chance(50) {
			op.Key = nil
		}
	case n < 11:
		op.Kind = ops.CreateBucketIfNotExists
	case n < 16:
		op.Kind = ops.DeleteBucket
		if len(have) > 0 && !h.chance(6) {
			op.Key = []byte(have[h.rand.IntN(len(have))])
		}
	default:
		return h.move(op, t, b)
	}
	return op
}

// move moves a bucket of b elsewhere.
func (h *History) move(op ops.Op, t *transaction, b *node) ops.Op {
	op.Kind = ops.MoveBucket
	if len(b.buckets) > 0 && !h.chance(8) {
		op.Key = []byte(b.buckets[h.rand.IntN(len(b.buckets))])
	}
	op.Dst, _ = h.path(t.root)
	if h.Stock && h.unsafeMove(op, t, b) {
		return ops.Op{Kind: ops.ForEachBucket, Tx: op.Tx, Path: op.Path}
	}
	return op
}

// unsafeMove tells whether bbolt may treat the move otherwise: it loses what
// the transaction did to the bucket, and looks at root pages, which inline
// buckets lack, to see whether two buckets are the same.
func (h *History) unsafeMove(op ops.Op, t *transaction, b *node) bool {
	e := b.entries[string(op.Key)]
	if e == nil || e.child == nil {
		return false
	}
	if e.child.dirty {
		return true
	}
	inside := append(append([]string{}, op.Path...), string(op.Key))
	return len(op.Dst) >= len(inside) && equalPaths(op.Dst[:len(inside)], inside)
}

func equalPaths(a, b []string) bool {
	for i := range a {
		if !bytes.Equal([]byte(a[i]), []byte(b[i])) {
			return false
		}
	}
	return true
}
