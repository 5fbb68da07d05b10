package mount

import (
	"os"
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
	for try := 1; ; try++ { // other programs may have the number, and give it back
		h := s.get(overlay([]string{s.layer("a")}, options...))
		dev, name, upper := h.entry.master.dev, h.entry.name, h.entry.plan.upper
		if s.kernel.another(dev, upper) {
			t.Error("an overlay is taken for another file system")
		}
		s.free(h)
		ipcNamespaces(t, dev)
		alive, err := s.kernel.alive(dev, name)
		must(t, err)
		if alive && s.kernel.another(dev, upper) {
			if s.kernel.another(dev, filepath.Join(s.dir, "nothing")) {
				t.Error("what cannot be compared is not known")
			}
			return
		}
		if try == 20 {
			t.Fatalf("the message queues are taken for an overlay, or no namespace has the number (%t)", alive)
		}
	}
}

// ipcNamespaces makes ipc namespaces until a file system has a number: the lowest that is free is given first. They
// last as long as the test.
func ipcNamespaces(t *testing.T, dev uint64) {
	t.Helper()
	for range 200 {
		cmd := exec.Command("/bin/cat")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWIPC}
		in, err := cmd.StdinPipe()
		must(t, err)
		must(t, cmd.Start())
		t.Cleanup(func() {
			in.Close()
			_ = cmd.Wait()
		})
		if unix.Ustat(int(dev), new(unix.Ustat_t)) == nil {
			return
		}
	}
}

// An unmount was never over: the number of the overlay had been given to a mount of another process that no
// namespace shows. So a step failed that had succeeded.
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

// A worker that was killed left an overlay, and the next one refused its directories for as long as a detached mount of
// another process had the number: a step makes some before it begins.
func TestRecoveryPastAnother(t *testing.T) {
	s := newStand(t, Options{})
	_, options := s.work("up")
	for try := 0; ; try++ {
		h := s.get(overlay([]string{s.layer("a")}, options...))
		rec := upperRecord{upper: h.entry.plan.upper, dev: h.entry.master.dev}
		name, r := h.entry.name, &recovery{m: s.Manager}
		for range 100 { // what is free changes meanwhile
			must(t, os.WriteFile(filepath.Join(h.Path(), "file"), make([]byte, 1<<16), 0o600))
			if alive, err := r.outlives(rec, name, time.Now()); !alive || err != nil {
				t.Fatalf("an overlay that is there: %t, %v", alive, err)
			}
		}
		s.free(h)
		for range 20 { // until one has the number: the lowest that is free is given first
			fd := detachedTmpfs(t)
			defer unix.Close(fd)
			var st unix.Stat_t
			must(t, unix.Fstat(fd, &st))
			if deviceOf(&st) != rec.dev {
				continue
			}
			if alive, err := r.outlives(rec, name, time.Now()); alive || err != nil {
				t.Errorf("a detached mount is taken for the overlay: %t, %v", alive, err)
			}
			return
		}
		if try == 50 {
			t.Fatal("no mount has the number")
		}
	}
}

func TestFar(t *testing.T) {
	for _, c := range []struct {
		n    uint32
		a, b uint64
		want bool
	}{{0, 0, 0, false}, {1, 0, 0, true}, {0, 4, 4, true}, {3, 4, 4, false}, {5, 4, 4, false}, {6, 4, 4, true}, {7, 4, 10, false}, {7, 10, 4, false}, {1 << 30, 1 << 31, 1 << 31, true}, {1 << 30, 1 << 31, 1 << 32, false}} {
		if far(c.n, c.a, c.b) != c.want {
			t.Errorf("%+v", c)
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
