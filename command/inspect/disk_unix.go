//go:build linux || darwin || freebsd

package inspect

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// diskFree is how many bytes may be written to the disk on which the file lies; false
// if the system does not tell.
func diskFree(file string) (int64, bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(file), &s); err != nil {
		return 0, false
	}
	return max(whole(s.Bavail)*whole(s.Bsize), 0), true
}

// whole is n, whose type differs between systems.
func whole[T ~int32 | ~int64 | ~uint32 | ~uint64](n T) int64 { return int64(n) }
