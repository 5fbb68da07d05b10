//go:build unix && !linux

package process

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
