package vfs

import "os"

// TempDir is a directory for temporary files that is on a disk, if there is
// one: the system's or, if that is in memory, /var/tmp.
func TempDir() string {
	const onDisk = "/var/tmp"
	dir := os.TempDir()
	if info, err := os.Stat(onDisk); InMemory(dir) && err == nil && info.IsDir() && !InMemory(onDisk) {
		return onDisk
	}
	return dir
}
