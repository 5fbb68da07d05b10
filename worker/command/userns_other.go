//go:build !linux

package command

import (
	"errors"
	"fmt"
	"runtime"
)

func privileged() bool { return true }

func (c *call) inUserNamespace() error {
	return fmt.Errorf("user namespaces on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
