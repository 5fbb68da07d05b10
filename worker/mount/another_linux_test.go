package mount

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The number of an overlay that is gone can be given to a file system that no mountinfo shows: that of
// the message queues of an ipc namespace. It is not taken for the overlay.
func TestAnotherHasTheNumber(t *testing.T) {
	s := newStand(t, Options{})
	_, options := s.work("up")
	h := s.get(overlay([]string{s.layer("a")}, options...))
	dev, name, upper := h.entry.master.dev, h.entry.name, h.entry.plan.upper
	if s.kernel.another(dev, upper) {
		t.Error("an overlay is taken for another file system")
	}
	s.free(h)
	// New ipc namespaces until one has the number: the lowest that is free is given first.
	for range 200 {
		cmd := exec.Command("/bin/cat")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWIPC}
		in, err := cmd.StdinPipe()
		must(t, err)
		must(t, cmd.Start())
		defer func() {
			in.Close()
			_ = cmd.Wait()
		}()
		if unix.Ustat(int(dev), new(unix.Ustat_t)) == nil {
			break
		}
	}
	if alive, err := s.kernel.alive(dev, name); err != nil || !alive {
		t.Fatalf("no namespace has the number: %v", err)
	}
	if !s.kernel.another(dev, upper) {
		t.Error("the message queues are taken for an overlay")
	}
	if s.kernel.another(dev, filepath.Join(s.dir, "nothing")) {
		t.Error("what cannot be compared is not known")
	}
}

// An unmount was never over: the number of the overlay had been given to a mount of another process that nobody shows. So a
// step failed that had succeeded.
func TestUnseenHasTheNumber(t *testing.T) {
	s := newStand(t, Options{ParkAfter: 500 * time.Millisecond})
	_, options := s.work("up")
	for range 5 {
		h := s.get(overlay([]string{s.layer("a")}, options...))
		dev := h.entry.master.dev
		held, err := h.Clone()
		must(t, err)
		h.Release()
		time.Sleep(time.Millisecond) // so that it has been tried
		must(t, held.Close())
		for range 200 { // until one has the number: the lowest that is free is given first
			fd := detachedTmpfs(t)
			defer unix.Close(fd)
			var st unix.Stat_t
			must(t, unix.Fstat(fd, &st))
			if deviceOf(&st) >= dev {
				break
			}
		}
		if err := h.Wait(s.ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func detachedTmpfs(t *testing.T) int {
	t.Helper()
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	must(t, err)
	defer unix.Close(fs)
	must(t, unix.FsconfigCreate(fs))
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	must(t, err)
	return fd
}
