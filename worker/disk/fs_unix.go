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
		Size:       clamp(st.Blocks, size),
		Free:       clamp(st.Bavail, size),
		Inodes:     clamp(st.Files, 1),
		FreeInodes: clamp(st.Ffree, 1),
		Kind:       kindOf(&st),
	}, nil
}
