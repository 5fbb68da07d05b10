//go:build !linux

package suite

import (
	"math"
	"os"
)

// Fdatasync waits until the data of f is on the disk.
func Fdatasync(f *os.File) error { return f.Sync() }

// DiskFree is not known here: the files are written, and a full disk is found
// then.
func DiskFree(string) (int64, error) { return math.MaxInt64, nil }

// DiskBytes is how many bytes of the disk a file takes, if it has no holes.
func DiskBytes(info os.FileInfo) int64 { return info.Size() }

// dropCache would take the file at path out of the page cache. It is not known how; a caller that
// calls it sees that nothing is read from the disk then.
func dropCache(string) error { return nil }
