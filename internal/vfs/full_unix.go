//go:build unix

package vfs

import "syscall"

var full = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}
