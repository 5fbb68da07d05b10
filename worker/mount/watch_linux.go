package mount

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher learns from the kernel which file systems are gone, with inotify. Their numbers tell that only until
// others get them, and nobody shows those that are detached, as the mounts of another manager are.
type watcher struct {
	mu sync.Mutex
	fd int                 // -1 when it is closed
	on map[int32]*watching // by the number of the watch
}

// watching is one file system.
type watching struct {
	by   *watcher
	left bool
}

func newWatcher() (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init1: %w", err)
	}
	return &watcher{fd: fd, on: map[int32]*watching{}}, nil
}

// add watches the file system of a descriptor, which is a directory.
func (w *watcher) add(fd int) (*watching, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd < 0 {
		return nil, os.ErrClosed
	}
	wd, err := unix.InotifyAddWatch(w.fd, fdPath(fd), unix.IN_UNMOUNT)
	if err != nil {
		return nil, fmt.Errorf("inotify_add_watch: %w", err)
	}
	n := &watching{by: w}
	w.on[int32(wd)] = n
	return n, nil
}

// gone tells whether the file system is.
func (n *watching) gone() bool {
	n.by.mu.Lock()
	defer n.by.mu.Unlock()
	if !n.left {
		n.by.read()
	}
	return n.left
}

// read takes what the kernel has to say. The caller holds the mutex.
func (w *watcher) read() {
	buf := make([]byte, 4096)
	for w.fd >= 0 {
		n, err := unix.Read(w.fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			wd, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
			b = b[min(len(b), unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:]))):]
			switch {
			case mask&unix.IN_Q_OVERFLOW != 0:
				w.compare()
			case mask&unix.IN_IGNORED != 0: // the last that is said of it
				w.lost(wd)
			}
		}
	}
}

func (w *watcher) lost(wd int32) {
	if n := w.on[wd]; n != nil {
		n.left = true
		delete(w.on, wd)
	}
}

// compare finds out which watches there still are, when the kernel had more to say than it keeps.
func (w *watcher) compare() {
	b, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(w.fd))
	if err != nil {
		return
	}
	there := map[int32]bool{}
	for _, line := range strings.Split(string(b), "\n") {
		var wd int32
		if _, err := fmt.Sscanf(line, "inotify wd:%x", &wd); err == nil {
			there[wd] = true
		}
	}
	for wd := range w.on {
		if !there[wd] {
			w.lost(wd)
		}
	}
}

func (w *watcher) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = unix.Close(w.fd)
	w.fd = -1
}

// watch has the kernel tell when the file system of a master is gone, if it can.
func (k *kernel) watch(m *master) {
	if !k.ways.has(CallInotify) {
		return
	}
	var err error
	if m.watched, err = k.watcher.add(m.fd); err != nil && !errors.Is(err, os.ErrClosed) {
		k.ways.lacks(CallInotify, err)
	}
}

// left tells whether the file system of a master has left the kernel; known is false if it cannot be told so.
func (k *kernel) left(m *master) (left, known bool) {
	if m.watched == nil {
		return false, false
	}
	if !m.watched.gone() {
		return false, true
	}
	// It is said shortly before the last is done. Who asks for the number waits until it is.
	k.gone(m.dev)
	return true, true
}
