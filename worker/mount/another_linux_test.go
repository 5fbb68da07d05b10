package mount

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

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
