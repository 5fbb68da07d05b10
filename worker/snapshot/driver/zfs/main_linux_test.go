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
	if pool := os.Getenv(envCommands); pool != "" {
		commands(pool)
	}
	os.Exit(drivertest.MainZFS(m))
}
