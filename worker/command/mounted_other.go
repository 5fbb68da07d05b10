//go:build !linux

package command

import (
	"errors"
	"fmt"
	"runtime"
)

func mountedHere(string) ([]mounted, error) {
	return nil, fmt.Errorf("listing mounts: not supported on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// sameFiles is true: other systems have no mount namespaces.
func sameFiles(int) bool { return true }
