//go:build unix

package prune

import (
	"io/fs"
	"syscall"
)

// allocated is how many bytes a file takes on the disk.
func allocated(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}
