//go:build unix

package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

func measure(dir string) (f FS, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return FS{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	size := uint64(st.Bsize)
	return FS{
		Size:       clamp(uint64(st.Blocks), size),
		Free:       clamp(uint64(max(st.Bavail, 0)), size),
		Inodes:     clamp(uint64(st.Files), 1),
		FreeInodes: clamp(uint64(max(st.Ffree, 0)), 1),
	}, nil
}
