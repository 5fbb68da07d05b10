package mountinfo

import (
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Each source of a step read all mounts of the machine, which takes the longer the more there
// are. They are read when they have changed, and only then.
func TestWatched(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a file system")
	}
	dir := t.TempDir()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for ever: the thread has a namespace of its own
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			t.Error(err)
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Error(err)
			return
		}
		var w Watched
		defer w.Close()
		look := func(there bool, reads int) {
			t.Helper()
			mounts, err := w.Mounts()
			if err != nil {
				t.Error(err)
			}
			if got := slices.ContainsFunc(mounts, func(m Mount) bool { return m.Point == dir }); got != there {
				t.Errorf("mounted: %v, want %v", got, there)
			}
			if w.reads != reads {
				t.Errorf("read %d times, want %d", w.reads, reads)
			}
		}
		look(false, 1)
		look(false, 1)
		if err := unix.Mount("test", dir, "tmpfs", 0, ""); err != nil {
			t.Error(err)
			return
		}
		look(true, 2)
		look(true, 2)
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
		look(false, 3)
		w.Close()
		look(false, 4)
	}()
	<-done
}
