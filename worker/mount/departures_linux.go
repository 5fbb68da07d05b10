package mount

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// departures learns from the kernel when file systems leave it, whoever had them last: a watch on
// the root of one ends with the event IN_UNMOUNT when the last mount of it is gone, in whatever namespace.
type departures struct {
	file *os.File

	mu     sync.Mutex
	fd     int // of file; -1 when it is closed
	left   map[int32]chan struct{}
	failed error // nothing is learnt any more
}

func newDepartures() (*departures, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init1: %w", err)
	}
	d := &departures{file: os.NewFile(uintptr(fd), "inotify"), fd: fd, left: map[int32]chan struct{}{}}
	go d.read()
	return d, nil
}

// watch returns a channel that is closed when the file system of an open directory has left the kernel.
func (d *departures) watch(dir int) (<-chan struct{}, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil {
		return nil, d.failed
	}
	w, err := unix.InotifyAddWatch(d.fd, fdPath(dir), unix.IN_UNMOUNT|unix.IN_ONLYDIR)
	if err != nil {
		return nil, fmt.Errorf("inotify_add_watch: %w", err)
	}
	c := make(chan struct{})
	d.left[int32(w)] = c
	return c, nil
}

// known tells whether the channels of watch can be relied on.
func (d *departures) known() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed == nil
}

// Parts of an event: the watch, what has happened, a cookie, the length of the name behind it.
const eventSize = unix.SizeofInotifyEvent

func (d *departures) read() {
	buf := make([]byte, 256*eventSize)
	for {
		n, err := d.file.Read(buf)
		if err == nil {
			err = d.tell(buf[:n])
		}
		if err != nil {
			d.mu.Lock()
			d.failed = fmt.Errorf("inotify: %w", err)
			d.mu.Unlock()
			return
		}
	}
}

var errEvents = errors.New("events were lost")

// tell closes the channels of those that have left.
func (d *departures) tell(events []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(events) >= eventSize {
		w := int32(binary.NativeEndian.Uint32(events))
		mask := binary.NativeEndian.Uint32(events[4:])
		size := uint64(eventSize) + uint64(binary.NativeEndian.Uint32(events[12:]))
		if mask&unix.IN_Q_OVERFLOW != 0 || size > uint64(len(events)) {
			return errEvents
		}
		if c := d.left[w]; c != nil && mask&unix.IN_UNMOUNT != 0 {
			close(c)
			delete(d.left, w)
		}
		events = events[size:]
	}
	return nil
}

func (d *departures) close() {
	d.mu.Lock()
	if d.failed == nil {
		d.failed = os.ErrClosed
	}
	d.mu.Unlock()
	_ = d.file.Close()
}

// watch has it noted when the file system of a master leaves the kernel, if the kernel can tell.
func (k *kernel) watch(m *master) {
	if k.departures == nil || !k.features.has(FeatureInotify) {
		return
	}
	left, err := k.departures.watch(m.fd)
	if err != nil {
		k.features.lacks(FeatureInotify, err)
		return
	}
	m.left = left
}

// left tells whether the file system of a master has left the kernel, if that is known.
func (k *kernel) left(m *master) (gone, known bool) {
	if m.left == nil {
		return false, false
	}
	if closed(m.left) {
		// It is told while the file system is being taken down. Whoever asks for it by its number waits for the rest.
		if k.features.has(FeatureUstat) {
			_ = unix.Ustat(int(m.dev), new(unix.Ustat_t))
		}
		return true, true
	}
	return false, k.departures.known()
}
