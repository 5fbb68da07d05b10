package osthread_test

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/osthread"
)

// TestWithout: the thread has not the capability meanwhile, and all others, and has what it had afterwards.
func TestWithout(t *testing.T) {
	runtime.LockOSThread() // which is asked
	defer runtime.UnlockOSThread()
	effective := func() uint64 {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			t.Fatal(err)
		}
		return uint64(data[1].Effective)<<32 | uint64(data[0].Effective)
	}
	before := effective()
	if before == 0 {
		t.Skip("left out: it has no capabilities, which takes root")
	}
	for _, c := range []int{unix.CAP_SYS_RESOURCE, unix.CAP_SYS_ADMIN, unix.CAP_BPF} {
		failed := errors.New("failed")
		err := osthread.Without(c, func() error {
			if now := effective(); now != before&^(1<<c) {
				t.Errorf("without %d: %x of %x", c, now, before)
			}
			return failed
		})
		if now := effective(); now != before || !errors.Is(err, failed) {
			t.Errorf("after %d: %x of %x, %v", c, now, before, err)
		}
	}
}
