package crash

import (
	"os"
	"runtime/debug"
	"testing"
)

// collectAt is how many times what is in use has to be allocated, in percent, before it is
// collected. Each disk is some hundred kilobytes that are forgotten at once, and little
// else is in use: with the usual 100 the collector runs several times for each, and takes
// three quarters of all processor time.
const collectAt = 1600

// memory is a file system in memory, which some systems have.
const memory = "/dev/shm"

func TestMain(m *testing.M) {
	debug.SetGCPercent(collectAt)
	// The disks are in memory but for those that bbolt opens. Nothing is asked of the disk
	// under these, and making many small files has to wait for others' flushes.
	if dir, err := os.MkdirTemp(memory, "holdfast-crash"); err == nil {
		_ = os.Setenv("TMPDIR", dir)
		code := m.Run()
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}
	os.Exit(m.Run())
}
