//go:build !linux

// Package zfsfuse has what whoever speaks with the daemon zfs-fuse must keep to. It is for Linux.
package zfsfuse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
)

var errOther = fmt.Errorf("zfs-fuse on %s: %w", runtime.GOOS, errors.ErrUnsupported)

// Turn is the right to speak with the daemon, which there is none here.
type Turn struct{}

// Begin fails.
func Begin(context.Context) (*Turn, error) { return nil, errOther }

// Seen is false.
func Seen() bool { return false }

// Lock is nil.
func (*Turn) Lock() *os.File { return nil }

// End does nothing.
func (*Turn) End() {}
