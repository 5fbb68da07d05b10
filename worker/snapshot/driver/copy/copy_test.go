package copy_test

import (
	"testing"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/drivertest"
)

func TestDriver(t *testing.T) {
	drivertest.Run(t, func(*testing.T, string) snapshot.Driver { return copy.New() })
}
