package vfs

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// datasync makes the drive write its own cache too, which fsync does not do
// here. File systems that have no such request get fsync.
func (f *OSFile) datasync() error {
	return f.control(func(fd uintptr) error {
		err := ignoringEINTR(func() error {
			_, err := unix.FcntlInt(fd, unix.F_FULLFSYNC, 0)
			return err
		})
		switch err {
		case unix.ENOTSUP, unix.EOPNOTSUPP, unix.ENOTTY, unix.EINVAL:
			return ignoringEINTR(func() error { return unix.Fsync(int(fd)) })
		}
		return err
	})
}

// extend makes the file size bytes long and reserves the blocks from old on.
func (f *OSFile) extend(old, size int64) error {
	request := &unix.Fstore_t{
		Flags:   unix.F_ALLOCATEALL,
		Posmode: unix.F_PEOFPOSMODE,
		Length:  size - old,
	}
	// FcntlFstore hands the address on as an integer, so the request must not
	// move: pinning puts it on the heap and keeps it there.
	var pinner runtime.Pinner
	pinner.Pin(request)
	defer pinner.Unpin()
	err := f.control(func(fd uintptr) error {
		return ignoringEINTR(func() error { return unix.FcntlFstore(fd, unix.F_PREALLOCATE, request) })
	})
	// Any other refusal means that the file system cannot reserve.
	if err == unix.ENOSPC || err == unix.EDQUOT {
		return err
	}
	return f.file.Truncate(size)
}
