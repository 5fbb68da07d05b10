//go:build !linux

package real

import "syscall"

func mountNamespace() *syscall.SysProcAttr { return nil }
