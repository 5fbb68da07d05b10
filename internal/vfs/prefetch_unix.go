//go:build unix && !linux && !openbsd

package vfs

import "golang.org/x/sys/unix"

// prefetch begins to read n bytes of the mapping data.
func (f *OSFile) prefetch(data []byte, off, n int64) {
	_ = unix.Madvise(data[off:off+n], unix.MADV_WILLNEED)
}
