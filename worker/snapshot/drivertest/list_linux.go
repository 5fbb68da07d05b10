package drivertest

import (
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes are owner, device number and extended attributes but for overlayfs's own.
func attributes(path string, info fs.FileInfo) string {
	st := info.Sys().(*syscall.Stat_t)
	s := fmt.Sprintf("%d:%d dev %d", st.Uid, st.Gid, st.Rdev)
	names := make([]byte, 4096)
	n, err := unix.Llistxattr(path, names)
	if err != nil || n == 0 {
		return s
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if strings.HasPrefix(name, "trusted.overlay.") {
			continue
		}
		value := make([]byte, 4096)
		if n, err := unix.Lgetxattr(path, name, value); err == nil {
			s += fmt.Sprintf(" %s=%x", name, value[:n])
		}
	}
	return s
}

// sharedInode is the inode of a file with several names, else 0.
func sharedInode(info fs.FileInfo) uint64 {
	if st := info.Sys().(*syscall.Stat_t); st.Nlink > 1 {
		return st.Ino
	}
	return 0
}
