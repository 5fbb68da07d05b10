package mountinfo

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// IDAt is the ID of the mount that a path without symbolic links is on. ok is false if there is nothing, or the kernel does not tell.
func IDAt(path string) (id uint64, ok bool) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &st)
	return st.Mnt_id, err == nil && st.Mask&unix.STATX_MNT_ID != 0
}

// Inside is the path below the mount of one that is on it.
func (m *Mount) Inside(path string) string {
	return strings.TrimPrefix(path, strings.TrimSuffix(m.Point, "/"))
}

// OnSystem is the path on the file system of one that is on the mount.
func (m *Mount) OnSystem(path string) string { return filepath.Join(m.Root, m.Inside(path)) }
