package real

import (
	"os"

	"golang.org/x/sys/unix"
)

// mountNamespace asks for a mount namespace; nil for who may not have one. The
// process dies with its parent.
func mountNamespace() *unix.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	return &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
}
