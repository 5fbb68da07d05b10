//go:build !linux

package overlay

import (
	"fmt"
	"runtime"

	"holdfast/worker/snapshot"
)

// Probe says that there is no overlayfs.
func (*Driver) Probe(string) error {
	return fmt.Errorf("overlayfs: %w on %s", snapshot.ErrUnsupported, runtime.GOOS)
}
