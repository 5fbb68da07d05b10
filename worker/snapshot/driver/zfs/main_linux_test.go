package zfs_test

import (
	"os"
	"testing"

	"holdfast/worker/internal/testing/zfsfuse"
)

func TestMain(m *testing.M) {
	zfsfuse.RunAsProgram()
	if dir := os.Getenv(envKilled); dir != "" {
		killed(dir)
	}
	if pool := os.Getenv(envCommands); pool != "" {
		commands(pool)
	}
	os.Exit(zfsfuse.Main(m))
}
