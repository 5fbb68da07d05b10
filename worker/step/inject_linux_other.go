//go:build linux && !amd64

package step

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// canInject is why a stopped program cannot be made to install a filter.
func canInject() error {
	return fmt.Errorf("a stopped program is not made to install its filter on %s: %w", runtime.GOARCH, unix.ENOTSUP)
}

// inject is never called.
func (f filter) inject(stoppedProgram, []resourceLimit, *entry, func() error) error {
	return canInject()
}
