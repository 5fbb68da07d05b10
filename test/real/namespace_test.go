package real

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"holdfast/internal/vfs"
)

// namespaceVariable is set in the process that runs the tests: to "mounts" if
// it has a mount namespace of its own.
const namespaceVariable = "HOLDFAST_REAL_NAMESPACE"

// runTests runs the tests in a process with a directory of its own for all
// temporary files, which is removed behind it, and, if it may, with a mount
// namespace of its own. Mounts end with that process however it ends, and so do
// loop devices, which detach themselves with their last user.
func runTests(m *testing.M) int {
	if os.Getenv(namespaceVariable) != "" {
		return m.Run()
	}
	removeLeftovers()
	dir := filepath.Join(vfs.TempDir(), leftoverPrefix+strconv.Itoa(os.Getpid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	run := func(namespace string, attr *syscall.SysProcAttr) error {
		cmd := exec.Command(os.Args[0], os.Args[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), namespaceVariable+"="+namespace, "TMPDIR="+dir)
		cmd.SysProcAttr = attr
		return cmd.Run()
	}
	err := errors.New("no mounts here")
	if attr := mountNamespace(); attr != nil {
		err = run("mounts", attr)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) { // not started: the tests that mount will skip
		err = run("none", nil)
	}
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// leftoverPrefix and a process id are the name of a directory of runTests.
const leftoverPrefix = "holdfast-real-"

// removeLeftovers removes the directories of processes that are gone.
func removeLeftovers() {
	dirs, _ := filepath.Glob(filepath.Join(vfs.TempDir(), leftoverPrefix+"*"))
	for _, dir := range dirs {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), leftoverPrefix))
		if err != nil {
			continue
		}
		process, err := os.FindProcess(pid)
		if err == nil && errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
			_ = os.RemoveAll(dir)
		}
	}
}
