package vfs

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
)

// CannotFlush tells whether the error of a Sync says that the file cannot be flushed, by
// this process or at all, and not that flushing it has failed.
func CannotFlush(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) ||
		slices.ContainsFunc([]error{syscall.EINVAL, syscall.EROFS, syscall.EBADF}, func(e error) bool { return errors.Is(err, e) })
}

// IsFull tells whether err says that there is no room: on the disk, in a quota,
// or below a limit on the size of files.
func IsFull(err error) bool {
	return slices.ContainsFunc(full, func(e error) bool { return errors.Is(err, e) })
}
