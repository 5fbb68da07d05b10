//go:build linux || darwin

package vfs

import "golang.org/x/sys/unix"

// pwritevLimit is IOV_MAX, and a total that no kernel refuses: Darwin does
// not take more than 2 GiB - 1.
var pwritevLimit = vecLimit{buffers: 1024, bytes: 1 << 30}

func (f *OSFile) writeVec(bufs [][]byte, off int64) error {
	return writeVec(bufs, off, pwritevLimit, func(batch [][]byte, off int64) (n int, err error) {
		err = f.control(func(fd uintptr) error {
			return ignoringEINTR(func() error {
				n, err = unix.Pwritev(int(fd), batch, off)
				return err
			})
		})
		return n, err
	})
}
