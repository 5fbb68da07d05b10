package vfs

import "golang.org/x/sys/unix"

// Bounds of one fallocate. A signal makes tmpfs undo the whole call, so the
// pieces shrink until one fits between two signals.
const (
	reserveMax = 1 << 30
	reserveMin = 1 << 20
)

func (f *OSFile) datasync() error {
	return f.control(func(fd uintptr) error {
		return ignoringEINTR(func() error { return unix.Fdatasync(int(fd)) })
	})
}

func (f *OSFile) dropCache(off, n int64) error {
	return f.control(func(fd uintptr) error {
		return unix.Fadvise(int(fd), off, n, unix.FADV_DONTNEED)
	})
}

// extend makes the file size bytes long and reserves the blocks from old on.
func (f *OSFile) extend(old, size int64) error {
	err := f.control(func(fd uintptr) error {
		var fs unix.Statfs_t
		if grow := size - old; grow > reserveMax && unix.Fstatfs(int(fd), &fs) == nil &&
			uint64(grow) > fs.Bfree*uint64(fs.Bsize) {
			return unix.ENOSPC // without filling the disk first to find out
		}
		return reserve(old, size, func(off, length int64) error {
			return unix.Fallocate(int(fd), 0, off, length)
		})
	})
	switch err {
	case unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL:
		// The file system cannot reserve.
		return f.file.Truncate(size)
	}
	return err
}

func reserve(off, end int64, fallocate func(off, length int64) error) error {
	piece := int64(reserveMax)
	for off < end {
		length := min(piece, end-off)
		switch err := fallocate(off, length); err {
		case nil:
			off += length
		case unix.EINTR:
			piece = max(piece/2, reserveMin)
		default:
			return err
		}
	}
	return nil
}
