package blobcmd

import (
	"errors"
	"syscall"
)

// isBrokenPipe tells whether err is that nothing reads what was written.
func isBrokenPipe(err error) bool {
	const noData = syscall.Errno(232)
	return errors.Is(err, syscall.ERROR_BROKEN_PIPE) || errors.Is(err, noData)
}
