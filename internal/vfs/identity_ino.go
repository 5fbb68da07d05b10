//go:build unix && !linux && !darwin && !freebsd && !netbsd && !openbsd

package vfs

import "golang.org/x/sys/unix"

// identify reads the number of a file's inode, which another file may have when this one is gone.
func identify(fd uintptr) ([]uint64, error) {
	var s unix.Stat_t
	err := unix.Fstat(int(fd), &s)
	return []uint64{uint64(s.Ino)}, err
}
