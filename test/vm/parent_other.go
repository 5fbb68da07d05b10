//go:build !linux

package vm

import "syscall"

// endsWithParent does nothing here: a machine may outlive a program that was killed.
func endsWithParent() *syscall.SysProcAttr { return nil }
