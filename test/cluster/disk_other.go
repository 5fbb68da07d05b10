//go:build unix && !linux

package cluster

import "errors"

// What follows is for Linux.

func canMount() bool { return false }

func mountSmall(string) error { return errors.ErrUnsupported }

func unmountSmall(string) {}
