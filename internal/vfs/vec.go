package vfs

import (
	"io"
)

// A vecLimit bounds one vectored write.
type vecLimit struct {
	buffers int
	bytes   int
}

// vec is what is left to write of a list of buffers.
type vec struct {
	bufs [][]byte
	skip int // bytes of bufs[0] already written
}

// next appends to batch the buffers to write next, cut to limit. No appended
// buffer is empty; nothing is appended when nothing is left.
func (v *vec) next(batch [][]byte, limit vecLimit) [][]byte {
	skip, room := v.skip, limit.bytes
	for _, buf := range v.bufs {
		if len(batch) == limit.buffers || room == 0 {
			break
		}
		buf = buf[skip:]
		skip = 0
		if len(buf) == 0 {
			continue
		}
		buf = buf[:min(len(buf), room)]
		room -= len(buf)
		batch = append(batch, buf)
	}
	return batch
}

// advance drops the next n bytes.
func (v *vec) advance(n int) {
	for n > 0 {
		left := len(v.bufs[0]) - v.skip
		if n < left {
			v.skip += n
			return
		}
		n -= left
		v.bufs, v.skip = v.bufs[1:], 0
	}
}

// writeVec writes bufs from off on by calling write, which may write less than
// it is given, with batches within limit.
func writeVec(bufs [][]byte, off int64, limit vecLimit, write func(batch [][]byte, off int64) (int, error)) error {
	return writeBatches(make([][]byte, 0, min(len(bufs), limit.buffers)), bufs, off, limit, write)
}

// writeBatches is writeVec with batch, which is empty, as memory.
func writeBatches(batch, bufs [][]byte, off int64, limit vecLimit, write func(batch [][]byte, off int64) (int, error)) error {
	left := vec{bufs: bufs}
	for {
		batch = left.next(batch[:0], limit)
		if len(batch) == 0 {
			return nil
		}
		n, err := write(batch, off)
		if err != nil {
			return err
		}
		if n <= 0 {
			return io.ErrShortWrite
		}
		left.advance(n)
		off += int64(n)
	}
}
