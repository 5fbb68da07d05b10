package mountinfo

import (
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// Watched has the mounts of a mount namespace in memory and reads them again only when they
// have changed, which the kernel tells who polls the file: a look at them takes no longer
// where there are tens of thousands. The zero value is ready; it has the namespace of the
// thread that calls Mounts first. Its methods may be called at once.
type Watched struct {
	mu     sync.Mutex
	file   descriptor
	open   bool
	mounts []Mount
	reads  int // for tests
}

// descriptor is not an os.File, whose poller would see the changes first.
type descriptor int

func (d descriptor) Read(p []byte) (int, error) {
	for {
		switch n, err := unix.Read(int(d), p); {
		case err == unix.EINTR:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// changed tells whether something was mounted or unmounted since it was asked last.
func (d descriptor) changed() (bool, error) {
	for {
		fds := []unix.PollFd{{Fd: int32(d), Events: unix.POLLPRI}}
		n, err := unix.Poll(fds, 0)
		if err != unix.EINTR {
			return n > 0, err
		}
	}
}

// Mounts returns all mounts. The caller must not change them.
func (w *Watched) Mounts() ([]Mount, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refresh(); err != nil {
		return nil, fmt.Errorf("%s: %w", Own, err)
	}
	return w.mounts, nil
}

func (w *Watched) refresh() error {
	if !w.open {
		fd, err := unix.Open(Own, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		w.file, w.open = descriptor(fd), true
	}
	changed, err := w.file.changed()
	if err != nil || !changed && w.mounts != nil {
		return err
	}
	// What changes from here on is told by the next poll.
	w.mounts = nil
	if _, err := unix.Seek(int(w.file), 0, io.SeekStart); err != nil {
		return err
	}
	w.reads++
	var mounts []Mount
	if err := Read(w.file, func(m *Mount) { mounts = append(mounts, *m) }); err != nil {
		return err
	}
	w.mounts = mounts
	return nil
}

// Close gives up the file. Mounts opens it again.
func (w *Watched) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open {
		_ = unix.Close(int(w.file))
	}
	w.open, w.mounts = false, nil
}
