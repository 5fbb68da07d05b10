//go:build unix && !linux

package cluster

import (
	"errors"
	"syscall"
)

// What follows is for Linux.

func dieWithParent() *syscall.SysProcAttr { return nil }

func canMount() bool { return false }

func mountSmall(string) error { return errors.ErrUnsupported }

func unmountSmall(string) {}
