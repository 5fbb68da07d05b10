package osthread

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// This file sets capabilities. moby/sys/capability does not serve: it drops nothing from the bounding set, and says
// nothing, where CAP_SETPCAP is missing, and reads /proc, which these threads may see as a step does.

// Capabilities are those of a thread.
type Capabilities [2]unix.CapUserData

// GetCapabilities returns the capabilities of the calling thread.
func GetCapabilities() (c Capabilities, err error) {
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &c[0]); err != nil {
		return c, fmt.Errorf("capget: %w", err)
	}
	return c, nil
}

// Set gives the calling thread the capabilities.
func (c *Capabilities) Set() error {
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &c[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// Confine takes from the programs that the calling thread starts, for good, all capabilities but those of keep, a bit
// each, and new privileges by set-user-ID and the like. What the thread itself has it keeps.
func Confine(keep uint64) error {
	if err := Bound(keep); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	return nil
}

// Bound takes from the programs that the calling thread starts, for good, all capabilities but those of keep, a bit
// each. What the thread itself has it keeps.
func Bound(keep uint64) error {
	for c := uintptr(0); c < 64; c++ {
		if keep&(1<<c) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL {
			break // the kernel has no more
		} else if err != nil {
			return fmt.Errorf("dropping capability %d: %w", c, err)
		}
	}
	return nil
}

// Without runs f on a thread that does not have the capability in effect. Afterwards the thread has it again, if it
// had it before.
func Without(capability int, f func() error) (err error) {
	runtime.LockOSThread()
	had, err := GetCapabilities()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	less := had
	less[capability/32].Effective &^= 1 << (capability % 32)
	if err := less.Set(); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		if back := had.Set(); back != nil {
			err = errors.Join(err, back) // the thread stays locked, and ends with its goroutine
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}
