//go:build unix

package vfs

import "syscall"

// full are the errors that say that there is no room.
var full = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}
