package mount

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
)

// This file finds out whether a file system has left the kernel: by its event, its number, or the mounts of all
// processes.

// unmountEvents learns from the kernel when file systems leave it, in whatever process: a watch on
// the root of one ends with the event IN_UNMOUNT when the last mount of it is gone, in whatever namespace.
type unmountEvents struct {
	file *os.File

	mu     sync.Mutex
	fd     int // of file; -1 when it is closed
	left   map[int32]chan struct{}
	failed error // nothing is learnt any more
}

func newUnmountEvents() (*unmountEvents, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init1: %w", err)
	}
	d := &unmountEvents{file: os.NewFile(uintptr(fd), "inotify"), fd: fd, left: map[int32]chan struct{}{}}
	go d.read()
	return d, nil
}

// watch returns a channel that is closed when the file system of an open directory has left the kernel.
func (d *unmountEvents) watch(dir int) (<-chan struct{}, error) {
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
func (d *unmountEvents) known() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed == nil
}

// Parts of an event: the watch, what has happened, a cookie, the length of the name after it.
const eventSize = unix.SizeofInotifyEvent

func (d *unmountEvents) read() {
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
func (d *unmountEvents) tell(events []byte) error {
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

func (d *unmountEvents) close() {
	d.mu.Lock()
	if d.failed == nil {
		d.failed = os.ErrClosed
	}
	d.mu.Unlock()
	_ = d.file.Close()
}

// watch has it noted when the file system of a master leaves the kernel, if the kernel can tell.
func (k *kernel) watch(m *master) {
	if k.events == nil || !k.features.has(FeatureInotify) {
		return
	}
	left, err := k.events.watch(m.fd)
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
		// The event comes while the file system is being taken down. Asking for it by its number waits for the rest.
		if k.features.has(FeatureUstat) {
			_ = unix.Ustat(int(m.dev), new(unix.Ustat_t))
		}
		return true, true
	}
	return false, k.events.known()
}

// quick tells whether gone can tell.
func (k *kernel) quick() bool { return k.features.has(FeatureUstat) }

// gone tells whether a number is that of no file system; false can mean that it was
// given to another, or that it is not known.
func (k *kernel) gone(dev uint64) bool {
	return k.features.has(FeatureUstat) && unix.Ustat(int(dev), new(unix.Ustat_t)) == unix.EINVAL
}

// alive tells whether a file system is still in the kernel, in whatever namespace or in
// none. A number may have been given to another meanwhile; if so that is seen if any
// process shows it under another name.
func (k *kernel) alive(dev uint64, name string) (bool, error) {
	if k.gone(dev) {
		return false, nil
	}
	sub := fmt.Sprintf(" %d:%d ", unix.Major(dev), unix.Minor(dev))
	seen, others := false, false
	k.searches.Add(1)
	err := eachNamespace(sub, func(_ *group, m *mountinfo.Mount) {
		if m.Major != unix.Major(dev) || m.Minor != unix.Minor(dev) {
			return
		}
		if m.Source == name {
			seen = true
		} else {
			others = true
		}
	})
	if err != nil {
		return true, err
	}
	return seen || k.features.has(FeatureUstat) && !others, nil
}

// stays is alive of an overlay with an upper directory, also where its number may belong to a file system that no
// process shows.
func (k *kernel) stays(dev uint64, name, upper string) (bool, error) {
	alive, err := k.alive(dev, name)
	return err != nil || alive && !k.another(dev, upper), err
}

// another tells that the number of an overlay belongs to another file system. Not all are shown by a process: an ipc
// namespace has one for its message queues, and a mount can be detached. An overlay has as much room as the file system
// of its upper directory.
func (k *kernel) another(dev uint64, upper string) bool {
	if !k.features.has(FeatureUstat) {
		return false
	}
	for range anotherTries { // what is free changes, but not by so much each time
		var u unix.Ustat_t
		var before, after unix.Statfs_t
		if unix.Statfs(upper, &before) != nil || unix.Ustat(int(dev), &u) != nil || unix.Statfs(upper, &after) != nil {
			return false
		}
		if !far(uint32(u.Tfree), before.Bfree, after.Bfree) && !far(uint32(u.Tinode), before.Ffree, after.Ffree) {
			return false
		}
	}
	return true
}

const anotherTries = 3

// far tells whether a number is neither between two others nor near them. It has no more than 32 bits on all kernels:
// of larger ones that is not known.
func far(n uint32, a, b uint64) bool {
	low, high := min(a, b), max(a, b)
	return high <= math.MaxUint32 && (uint64(n) < low-low/4 || uint64(n) > high+high/4)
}

// inUseBy names the processes that hold a file system, if it is worth looking for them.
func (k *kernel) inUseBy(name string, look bool) string {
	if !look {
		return ""
	}
	k.searches.Add(1)
	pids := holders(name)
	if len(pids) == 0 {
		return ""
	}
	return fmt.Sprintf(" in the namespaces of the processes %v", pids)
}

// holders lists the processes in whose namespaces a mount has a name.
func holders(name string) []int {
	var pids []int
	_ = eachNamespace(" "+name+" ", func(g *group, m *mountinfo.Mount) {
		if m.Source == name {
			pids = append(pids, g.pids...)
		}
	})
	return pids
}
