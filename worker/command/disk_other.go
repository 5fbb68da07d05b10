//go:build !linux

package command

import (
	"errors"
	"fmt"
	"runtime"
)

func diskOf(path string) (diskFigures, error) {
	return diskFigures{}, fmt.Errorf("free space of %s: not supported on %s: %w", path, runtime.GOOS, errors.ErrUnsupported)
}
