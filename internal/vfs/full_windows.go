package vfs

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// full are the errors that say that there is no room.
var full = []error{syscall.ENOSPC, syscall.EDQUOT, windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL, windows.ERROR_DISK_QUOTA_EXCEEDED}
