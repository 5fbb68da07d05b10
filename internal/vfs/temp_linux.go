package vfs

import "golang.org/x/sys/unix"

// InMemory tells whether dir is on a file system without a disk, where a flush
// does nothing. It is false where the system does not tell.
func InMemory(dir string) bool {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return false
	}
	return uint32(fs.Type) == unix.TMPFS_MAGIC || uint32(fs.Type) == unix.RAMFS_MAGIC
}
