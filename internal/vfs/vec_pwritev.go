//go:build linux || darwin

package vfs

import (
	"sync"

	"golang.org/x/sys/unix"
)

// pwritevLimit is IOV_MAX, and a total that no kernel refuses: Darwin does
// not take more than 2 GiB - 1.
var pwritevLimit = vecLimit{buffers: 1024, bytes: 1 << 30}

// pwritev is the memory of a vectored write, so that small ones take none.
type pwritev struct {
	file    *OSFile
	batch   [][]byte
	room    [fewBuffers][]byte
	off     int64
	n       int
	write   func(batch [][]byte, off int64) (int, error)
	control func(fd uintptr)
	call    func() error
	fd      uintptr
	err     error
}

// fewBuffers is the number of buffers for which a pwritev has room.
const fewBuffers = 8

var pwritevs = sync.Pool{New: func() any {
	w := new(pwritev)
	w.write, w.control, w.call = w.writeBatch, w.with, w.once
	return w
}}

func (f *OSFile) writeVec(bufs [][]byte, off int64) error {
	w := pwritevs.Get().(*pwritev)
	w.file = f
	batch := w.room[:0]
	if len(bufs) > fewBuffers {
		batch = make([][]byte, 0, min(len(bufs), pwritevLimit.buffers))
	}
	err := writeBatches(batch, bufs, off, pwritevLimit, w.write)
	w.file, w.batch, w.err = nil, nil, nil
	clear(w.room[:])
	pwritevs.Put(w)
	return err
}

func (w *pwritev) writeBatch(batch [][]byte, off int64) (int, error) {
	w.batch, w.off, w.n, w.err = batch, off, 0, nil
	if err := w.file.lend(w.control); err != nil {
		return 0, err
	}
	return w.n, w.err
}

func (w *pwritev) with(fd uintptr) {
	w.fd = fd
	w.err = ignoringEINTR(w.call)
}

func (w *pwritev) once() (err error) {
	w.n, err = unix.Pwritev(int(w.fd), w.batch, w.off)
	return err
}
