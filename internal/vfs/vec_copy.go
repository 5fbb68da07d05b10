//go:build (unix && !linux && !darwin && !openbsd) || windows

package vfs

import "sync"

// copyLimit bounds the buffer that small buffers are copied into.
var copyLimit = vecLimit{buffers: 1024, bytes: 256 << 10}

// copied is the memory of a vectored write, so that writes take none.
type copied struct {
	file     *OSFile
	batch    [][]byte
	together []byte
	write    func(batch [][]byte, off int64) (int, error)
}

var copies = sync.Pool{New: func() any {
	w := new(copied)
	w.write = w.writeBatch
	return w
}}

// writeVec copies small buffers together, because copying them costs less
// than a system call for each.
func (f *OSFile) writeVec(bufs [][]byte, off int64) error {
	w := copies.Get().(*copied)
	w.file = f
	if cap(w.batch) < min(len(bufs), copyLimit.buffers) {
		w.batch = make([][]byte, 0, min(len(bufs), copyLimit.buffers))
	}
	err := writeBatches(w.batch, bufs, off, copyLimit, w.write)
	w.file = nil
	clear(w.batch[:cap(w.batch)])
	copies.Put(w)
	return err
}

func (w *copied) writeBatch(batch [][]byte, off int64) (int, error) {
	if len(batch) == 1 {
		return w.file.file.WriteAt(batch[0], off)
	}
	if w.together == nil {
		w.together = make([]byte, 0, copyLimit.bytes)
	}
	w.together = w.together[:0]
	for _, buf := range batch {
		w.together = append(w.together, buf...)
	}
	return w.file.file.WriteAt(w.together, off)
}
