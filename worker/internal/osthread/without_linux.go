package osthread

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Without runs f on a thread that has not the capability in effect meanwhile, and has it again afterwards, if it had.
func Without(capability int, f func() error) (err error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had [2]unix.CapUserData
	runtime.LockOSThread()
	if err := unix.Capget(&header, &had[0]); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("capget: %w", err)
	}
	less := had
	less[capability/32].Effective &^= 1 << (capability % 32)
	if err := unix.Capset(&header, &less[0]); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("capset: %w", err)
	}
	defer func() {
		if back := unix.Capset(&header, &had[0]); back != nil {
			err = errors.Join(err, fmt.Errorf("capset: %w", back)) // the thread stays locked, and ends with its goroutine
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}
