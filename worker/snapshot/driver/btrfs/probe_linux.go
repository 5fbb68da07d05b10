package btrfs

import (
	"fmt"
	"os/exec"

	"golang.org/x/sys/unix"

	"holdfast/worker/snapshot"
)

// Probe looks whether root is on btrfs, and whether the command is there.
func (*Driver) Probe(root string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", root, err)
	}
	if uint32(st.Type) != unix.BTRFS_SUPER_MAGIC {
		return fmt.Errorf("%s is not on btrfs: %w", root, snapshot.ErrUnsupported)
	}
	if _, err := exec.LookPath("btrfs"); err != nil {
		return fmt.Errorf("the command btrfs is missing; Debian has it in btrfs-progs: %w (%w)", err, snapshot.ErrUnsupported)
	}
	return nil
}
