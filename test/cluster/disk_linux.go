package cluster

import (
	"os"

	"golang.org/x/sys/unix"
)

// canMount tells whether mountSmall can be expected to work.
func canMount() bool { return os.Geteuid() == 0 }

// mountSmall mounts a file system in memory with room for a member, and little more.
func mountSmall(dir string) error { return unix.Mount("holdfast-test", dir, "tmpfs", 0, "size=500m") }

func unmountSmall(dir string) { _ = unix.Unmount(dir, unix.MNT_DETACH) }
