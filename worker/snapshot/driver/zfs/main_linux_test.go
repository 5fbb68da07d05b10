package zfs_test

import (
	"os"
	"testing"

	"holdfast/worker/snapshot/drivertest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envKilled); dir != "" {
		killed(dir)
	}
	os.Exit(drivertest.MainZFS(m))
}
