package vfs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A lock of a whole file, as the locks of File are on NFS, is none of its bytes.
func TestLockByteIsOfOneByte(t *testing.T) {
	a, b := twoOpened(t, os.O_RDONLY)
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	must(t, a.control(func(fd uintptr) error { return unix.FcntlFlock(fd, unix.F_OFD_SETLK, &whole) }))
	for _, off := range []int64{0, 1 << 62} {
		if locked, err := b.ByteLocked(off); err != nil || locked {
			t.Errorf("byte %d is locked (%v)", off, err)
		}
	}
}
