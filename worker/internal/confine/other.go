//go:build !linux

package confine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// Run is for Linux.
func Run(context.Context, Command) ([]byte, error) {
	return nil, fmt.Errorf("confining a program on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
