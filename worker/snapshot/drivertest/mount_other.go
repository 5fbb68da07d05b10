//go:build !linux

package drivertest

import (
	"runtime"
	"slices"
	"testing"

	"holdfast/worker/mount"
)

// Mount gives the source of a single writable bind mount, which has the same files. Nothing else
// can be mounted here: the test is skipped.
func Mount(t testing.TB, mounts []mount.Mount) (target string, unmount func()) {
	t.Helper()
	return MountServed(t, mounts, nil)
}

// MountServed is Mount with Mounters for some types.
func MountServed(t testing.TB, mounts []mount.Mount, _ map[string]mount.Mounter) (target string, unmount func()) {
	t.Helper()
	if len(mounts) == 1 && mounts[0].Type == "bind" && slices.Contains(mounts[0].Options, "rw") {
		return mounts[0].Source, func() {}
	}
	t.Skip("mounts are tested on Linux, not on " + runtime.GOOS)
	return "", nil
}
