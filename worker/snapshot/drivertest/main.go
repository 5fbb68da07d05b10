package drivertest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TempName begins the name of the directory that has all temporary files of a test program.
const TempName = "holdfast-worker-"

// Main runs the tests of a package in a directory for temporary files of their own, and fails if anything is mounted in
// it, or attached to a loop device, when they have ended. It is for TestMain, and returns what to exit with.
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", TempName)
	if err == nil {
		err = os.Setenv("TMPDIR", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	left := leftovers(dir)
	for _, line := range left {
		fmt.Fprintln(os.Stderr, "left over:", line)
		code = 1
	}
	if len(left) == 0 { // else it would delete what is mounted
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// leftovers are the mounts and loop devices of files in dir.
func leftovers(dir string) (found []string) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil // there are no mounts that tests make
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return append(found, loops(dir)...)
}
