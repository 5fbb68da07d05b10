package disk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// kinds are names of types of file systems.
var kinds = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay", 0x2fc12fc1: "zfs", unix.NFS_SUPER_MAGIC: "nfs", unix.EROFS_SUPER_MAGIC_V1: "erofs",
}

func kindOf(st *unix.Statfs_t) string {
	if kind, ok := kinds[int64(st.Type)]; ok { //nolint:unconvert // its type is another on other processors
		return kind
	}
	return fmt.Sprintf("type %#x", st.Type)
}
