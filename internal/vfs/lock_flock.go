//go:build unix && !aix && !solaris && !openbsd

package vfs

import "golang.org/x/sys/unix"

// tryLock returns false when another open file holds the lock.
func tryLock(fd uintptr, exclusive bool) (bool, error) {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	err := ignoringEINTR(func() error { return unix.Flock(int(fd), how|unix.LOCK_NB) })
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

func unlock(fd uintptr) error {
	return ignoringEINTR(func() error { return unix.Flock(int(fd), unix.LOCK_UN) })
}
