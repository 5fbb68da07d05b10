//go:build amd64 || arm64 || riscv64

package vfs

import "golang.org/x/sys/unix"

// This file flushes and extends files on FreeBSD.

func (f *OSFile) datasync() error {
	return f.control(func(fd uintptr) error {
		return ignoringEINTR(func() error {
			if _, _, errno := unix.Syscall(unix.SYS_FDATASYNC, fd, 0, 0); errno != 0 {
				return errno
			}
			return nil
		})
	})
}

// extend makes the file size bytes long and reserves the blocks from old on.
func (f *OSFile) extend(old, size int64) error {
	err := f.control(func(fd uintptr) error {
		return ignoringEINTR(func() error { return reserve(fd, old, size-old) })
	})
	switch err {
	case unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL, unix.ENODEV:
		// The file system cannot reserve; ZFS says EINVAL.
		return f.file.Truncate(size)
	}
	return err
}

// reserve is posix_fallocate, which returns its error instead of setting errno.
func reserve(fd uintptr, off, length int64) error {
	result, _, errno := unix.Syscall(unix.SYS_POSIX_FALLOCATE, fd, uintptr(off), uintptr(length))
	if errno != 0 {
		return errno
	}
	if result != 0 {
		return unix.Errno(result)
	}
	return nil
}
