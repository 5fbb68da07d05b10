package command

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fileSystems are names of types of file systems.
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay", 0x2fc12fc1: "zfs", unix.NFS_SUPER_MAGIC: "nfs", unix.EROFS_SUPER_MAGIC_V1: "erofs",
}

func diskOf(path string) (diskFigures, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return diskFigures{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	kind, ok := fileSystems[whole(s.Type)]
	if !ok {
		kind = fmt.Sprintf("type %#x", s.Type)
	}
	unit := whole(s.Bsize)
	return diskFigures{kind, int64(s.Blocks) * unit, int64(s.Bavail) * unit, int64(s.Files), int64(s.Ffree)}, nil
}

// whole is n, whose type differs between systems.
func whole[T ~int32 | ~int64 | ~uint32](n T) int64 { return int64(n) }
