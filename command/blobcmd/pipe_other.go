//go:build !windows

package blobcmd

import (
	"errors"
	"syscall"
)

// isBrokenPipe tells whether err is that nothing reads what was written.
func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
