package real

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// namespaceVariable is set in the process that runs the tests.
const namespaceVariable = "HOLDFAST_REAL_NAMESPACE"

// runTests runs the tests in a process with a mount namespace of its own, if
// it may: mounts end with it, and so do loop devices, which detach themselves
// with their last user.
func runTests(m *testing.M) int {
	if os.Geteuid() != 0 || os.Getenv(namespaceVariable) != "" {
		return m.Run()
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), namespaceVariable+"=1")
	cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1)
	}
	// No namespaces here, so no mounts either: the tests that need them skip.
	return m.Run()
}
