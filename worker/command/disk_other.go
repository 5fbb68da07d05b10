//go:build !linux

package command

import (
	"errors"
	"fmt"
	"runtime"
)

func diskOf(path string) (disk, error) {
	return disk{}, fmt.Errorf("free space of %s: not supported on %s: %w", path, runtime.GOOS, errors.ErrUnsupported)
}
