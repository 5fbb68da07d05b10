package overlay_test

import (
	"os"
	"testing"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/overlay"
	"holdfast/worker/snapshot/drivertest"
)

func TestDriver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts overlays")
	}
	drivertest.Run(t, func(*testing.T, string) snapshot.Driver { return overlay.New() })
}
