//go:build !linux

package step

import (
	"errors"
	"fmt"
	"runtime"

	"holdfast/worker/mount"
)

var errOther = fmt.Errorf("not supported on %s: %w", runtime.GOOS, errors.ErrUnsupported)

type unsupported string

func (u unsupported) Name() string                    { return string(u) }
func (unsupported) open(*environment) (opened, error) { return nil, errOther }

// Native is a runtime that this system does not have.
func Native() Runtime { return unsupported("native") }

// Runc is a runtime that this system does not have.
func Runc() Runtime { return unsupported("runc") }

// Init does nothing on this system.
func Init() {}

type cgroups struct{}

func findCgroups(string) (*cgroups, error) { return &cgroups{}, nil }
func (*cgroups) dirs() []string            { return nil }
func (*cgroups) clean() error              { return nil }
func (*cgroups) removeAll()                {}

func lookupUser(int, User) (User, error) { return User{}, errOther }

func findMark(*mount.Namespace) (string, error) { return "", nil }
