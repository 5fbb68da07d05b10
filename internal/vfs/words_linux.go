//go:build !arm && !mips && !mipsle

package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// This file does not build on 32-bit processors where sync/atomic may change 64 bits under a lock
// of its own process.

func inode(fd uintptr) (device, number uint64, err error) {
	var s unix.Stat_t
	err = unix.Fstat(int(fd), &s)
	return uint64(s.Dev), s.Ino, err //nolint:unconvert // 32 bits on some processors
}

func access(fd uintptr) (mode os.FileMode, user, group int, err error) {
	var s unix.Stat_t
	err = unix.Fstat(int(fd), &s)
	return os.FileMode(s.Mode & 0o777), int(s.Uid), int(s.Gid), err
}

func mapWords(fd uintptr, n int) ([]byte, error) {
	return unix.Mmap(int(fd), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func tryLockByte(fd uintptr, off int64) (bool, error) {
	_, err := byteLock(fd, unix.F_OFD_SETLK, unix.F_WRLCK, off)
	if err == unix.EAGAIN || err == unix.EACCES {
		return false, nil
	}
	return err == nil, err
}

func unlockByte(fd uintptr, off int64) error {
	_, err := byteLock(fd, unix.F_OFD_SETLK, unix.F_UNLCK, off)
	return err
}

// byteLocked asks for what stands against a lock for reading: a lock for writing, which a file that is open
// for reading cannot have. A lock of more than the byte is another one: on NFS, that of File.Lock is one of all bytes.
func byteLocked(fd uintptr, off int64) (bool, error) {
	found, err := byteLock(fd, unix.F_OFD_GETLK, unix.F_RDLCK, off)
	return found.Type != unix.F_UNLCK && found.Start == off && found.Len == 1, err
}

// byteLock returns the lock as the system has left it.
func byteLock(fd uintptr, command int, kind int16, off int64) (unix.Flock_t, error) {
	lock := unix.Flock_t{Type: kind, Start: off, Len: 1}
	err := ignoringEINTR(func() error { return unix.FcntlFlock(fd, command, &lock) })
	if err == unix.EINVAL {
		err = errNoBytes // kernels before 3.15
	}
	return lock, err
}
