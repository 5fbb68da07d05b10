//go:build darwin || freebsd || netbsd

package vfs

import "golang.org/x/sys/unix"

// identify reads the number of a file's inode and the time at which that was made.
func identify(fd uintptr) ([]uint64, error) {
	var s unix.Stat_t
	err := unix.Fstat(int(fd), &s)
	return []uint64{s.Ino, uint64(s.Btim.Sec), uint64(s.Btim.Nsec)}, err
}
