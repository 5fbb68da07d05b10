package suite

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Fdatasync waits until the data of f is on the disk.
func Fdatasync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

// DiskFree is the number of bytes that files in dir can take.
func DiskFree(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(s.Bavail * uint64(s.Bsize)), nil
}

// DiskBytes is how many bytes of the disk a file takes.
func DiskBytes(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}

// dropCache takes the file at path out of the page cache, as far as it is not in use.
func dropCache(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := Fdatasync(f); err != nil { // what is not on the disk cannot be dropped
		return err
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return &os.PathError{Op: "fadvise", Path: path, Err: err}
	}
	return nil
}
