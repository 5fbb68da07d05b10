//go:build !linux

package btrfs

import (
	"fmt"
	"runtime"

	"holdfast/worker/snapshot"
)

// Probe says that there is no btrfs.
func (*Driver) Probe(string) error {
	return fmt.Errorf("btrfs: %w on %s", snapshot.ErrUnsupported, runtime.GOOS)
}
