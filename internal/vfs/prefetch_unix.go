//go:build unix && !linux && !openbsd

package vfs

import "golang.org/x/sys/unix"

// prefetchFile does nothing: what begins to read is advice on a mapping.
func (f *OSFile) prefetchFile(int64, int64) {}

// prefetch begins to read n bytes of the mapping data.
func (f *OSFile) prefetch(data []byte, off, n int64) {
	_ = unix.Madvise(data[off:off+n], unix.MADV_WILLNEED)
}
