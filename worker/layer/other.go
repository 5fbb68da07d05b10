//go:build !linux

package layer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
)

// Compare is for Linux.
func Compare(context.Context, string, string, func(Change) error) error {
	return fmt.Errorf("trees on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Write is for Linux.
func Write(context.Context, io.Writer, string, string) error {
	return fmt.Errorf("layers on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// WriteAll is for Linux.
func WriteAll(context.Context, io.Writer, string, string, func(string, *File) error) error {
	return fmt.Errorf("layers on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
