//go:build aix || solaris

package vfs

import "golang.org/x/sys/unix"

// tryLock returns false when another process holds the lock.
func tryLock(fd uintptr, exclusive bool) (bool, error) {
	kind := int16(unix.F_RDLCK)
	if exclusive {
		kind = unix.F_WRLCK
	}
	err := setLock(fd, kind)
	if err == unix.EAGAIN || err == unix.EACCES {
		return false, nil
	}
	return err == nil, err
}

func unlock(fd uintptr) error { return setLock(fd, unix.F_UNLCK) }

// setLock applies to the whole file, however long it becomes: Len is 0.
func setLock(fd uintptr, kind int16) error {
	return ignoringEINTR(func() error {
		return unix.FcntlFlock(fd, unix.F_SETLK, &unix.Flock_t{Type: kind})
	})
}
