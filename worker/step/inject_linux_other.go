//go:build linux && !amd64

package step

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/seccomp"
)

// canInject is why a stopped program cannot be made to install a filter.
func canInject() error {
	return fmt.Errorf("a stopped program is not made to install its filter on %s: %w", runtime.GOARCH, unix.ENOTSUP)
}

// inject is never called.
func (stoppedProgram) inject(seccomp.Filter, []resourceLimit, *entry, func() error) error {
	return canInject()
}
