package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Handle holds a mount. Its methods can be called by several goroutines at once.
type Handle struct {
	m     *Manager
	entry *entry

	mu       sync.Mutex
	released bool
	attached []*attachment

	counted chan struct{} // closed when the attachments are gone and the mount is given back
	parked  chan struct{} // closed when an attachment is parked
}

// attachment is a clone of the mount at a path.
type attachment struct {
	ns     *Namespace
	path   string
	made   bool   // the mount point is the manager's own
	number uint64 // of its record; 0: it has none
}

func newHandle(m *Manager, e *entry) *Handle {
	return &Handle{m: m, entry: e, counted: make(chan struct{}), parked: make(chan struct{})}
}

// FD is a descriptor of the root of the mount, for openat and the like. It belongs to the
// mount and is good until Release or Entrust; it must not be closed. After that it is -1.
func (h *Handle) FD() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return -1
	}
	return h.entry.master.fd
}

// Path leads to the root of the mount, for this process and until Release: it names the
// descriptor. Other programs need Attach.
func (h *Handle) Path() string { return fdPath(h.FD()) }

// Clone returns a mount of its own of the same file system, which is not attached
// anywhere, for a child that attaches it in its namespace with move_mount. It is alive as long as
// the file or a copy of it is open: the mount that the handle holds is not gone before.
func (h *Handle) Clone() (*os.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return nil, fmt.Errorf("mount: %s: the handle is released: %w", h.entry.plan, os.ErrClosed)
	}
	if h.entry.entrusted {
		return nil, fmt.Errorf("mount: %s: its clones have it: %w", h.entry.plan, os.ErrClosed)
	}
	fd, err := h.m.kernel.clone(h.entry.master, h.entry.plan.recursive)
	if err != nil {
		return nil, fmt.Errorf("mount: %s: %w", h.entry.plan, err)
	}
	return os.NewFile(uintptr(fd), h.entry.plan.String()), nil
}

// MapsIDs tells whether the mount shows ids as others.
func (h *Handle) MapsIDs() bool { return h.entry.plan.ids.Set() }

// Entrust leaves the mount to the clones that there are: the file system leaves the kernel with the last of them, and
// what is open in it, and not after Release only. That takes the kernel as long as a step's other preparations. The
// directories stay taken until Release, and Wait tells as ever when it has left. The handle has no descriptor, clones
// or attachments from then on. It does nothing with a mount that others hold, that is attached or cannot be written,
// and where the kernel does not tell when file systems leave it.
func (h *Handle) Entrust() {
	if m := h.entrust(); m != nil {
		h.m.kernel.release(m)
	}
}

// entrust returns the manager's own mount, which it has no longer; nil if it has to stay.
func (h *Handle) entrust() *master {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	e := h.entry
	if h.released || e.entrusted || e.refs > 1 || e.plan.upper == "" || len(h.attached) > 0 || !h.m.kernel.leaves(e.master) {
		return nil
	}
	if h.m.shared[e.key] == e {
		delete(h.m.shared, e.key)
	}
	own := *e.master
	e.master.fd, e.entrusted = -1, true
	return &own
}

// Attach makes the mount visible at a path in a namespace until Release or Detach, and returns
// the path. It must be an absolute one that exists there, of a directory, or of a file if the
// root of the mount is a file; "" makes one below the manager's directory, which both
// namespaces have.
func (h *Handle) Attach(n *Namespace, path string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return "", fmt.Errorf("mount: %s: the handle is released: %w", h.entry.plan, os.ErrClosed)
	}
	if h.entry.entrusted {
		return "", fmt.Errorf("mount: %s: its clones have it: %w", h.entry.plan, os.ErrClosed)
	}
	if path != "" && !filepath.IsAbs(path) {
		return "", fmt.Errorf("mount: attaching %s at %q, which is not an absolute path", h.entry.plan, path)
	}
	a := &attachment{ns: n, path: filepath.Clean(path)}
	err := h.attach(a, path == "")
	if err != nil {
		return "", fmt.Errorf("mount: attaching %s: %w", h.entry.plan, err)
	}
	h.attached = append(h.attached, a)
	return a.path, nil
}

func (h *Handle) attach(a *attachment, anywhere bool) (err error) {
	number := h.m.next()
	if anywhere {
		parent := filepath.Join(h.m.kernel.dir, pointsDir)
		if a.path, err = makePoint(parent, fmt.Sprintf("%s%d", h.m.kernel.prefix, number), h.entry.master.dir); err != nil {
			return err
		}
		a.made = true
	}
	if a.ns == h.m.kernel.host {
		if err := h.m.records.putAttached(number, attachedRecord{h.entry.master.dev, a.path}); err != nil {
			return err
		}
		a.number = number
	}
	err = h.m.kernel.attach(h.entry.master, h.entry.plan.recursive, a.ns, a.path)
	if err == nil {
		return nil
	}
	if a.number != 0 {
		err = errors.Join(err, h.m.records.dropAttached(number))
	}
	if a.made {
		_ = os.Remove(a.path)
	}
	return err
}

// Detach takes the mount away from a path that Attach has returned. Unlike Release it
// fails with ErrBusy if the mount is used there, and the attachment stays.
func (h *Handle) Detach(path string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.attached, func(a *attachment) bool { return a.path == filepath.Clean(path) })
	if i < 0 {
		return fmt.Errorf("mount: %s is not attached at %s", h.entry.plan, path)
	}
	if err := h.m.detach(h.attached[i]); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	h.attached = slices.Delete(h.attached, i, i+1)
	return nil
}

// detach unmounts an attachment, and drops its record.
func (m *Manager) detach(a *attachment) error {
	if err := m.kernel.detach(a.ns, a.path, a.made); err != nil {
		return err
	}
	if a.number == 0 {
		return nil
	}
	return m.records.dropAttached(a.number)
}

// Release gives the mount back, and takes its attachments away. It returns at once; what
// is in use is unmounted when it no longer is. Further calls do nothing.
func (h *Handle) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return
	}
	h.released = true
	if len(h.attached) == 0 {
		h.m.leaveEntry(h.entry)
		close(h.counted)
		return
	}
	list := make([]*pending, len(h.attached))
	h.m.mu.Lock()
	for i, a := range h.attached {
		list[i] = h.m.register(fmt.Sprintf("%s at %s", h.entry.plan, a.path))
	}
	h.m.mu.Unlock()
	go h.detachAll(h.attached, list)
	h.attached = nil
}

// detachAll takes attachments away, each with its entry in the list of what is pending,
// and then gives the mount back.
func (h *Handle) detachAll(all []*attachment, list []*pending) {
	var once sync.Once
	park := func() { once.Do(func() { close(h.parked) }) }
	for i, a := range all {
		done := h.m.persist(list[i], park, func(bool) error {
			err := h.m.detach(a)
			if err == nil && i == len(all)-1 {
				h.m.leaveEntry(h.entry) // while this is still pending: no caller sees neither
			}
			return err
		})
		if !done {
			return
		}
	}
	close(h.counted)
}

// Wait waits, after Release, until the attachments are gone, and the mount too unless it
// is shared or idle: what was written through an overlay is in its upper directory then, and that can be
// used otherwise. It returns ErrBusy if an unmount is parked meanwhile, which Pending explains.
func (h *Handle) Wait(ctx context.Context) error {
	fail := func(err error) error {
		return fmt.Errorf("mount: waiting for the unmount of %s: %w", h.entry.plan, err)
	}
	select {
	case <-h.counted:
	default:
		select {
		case <-h.counted:
		case <-h.parked:
			return fail(ErrBusy)
		case <-ctx.Done():
			return fail(ctx.Err())
		}
	}
	h.m.mu.Lock()
	going := h.entry.state == leaving
	h.m.mu.Unlock()
	if !going {
		return nil
	}
	select {
	case <-h.entry.gone:
		return nil
	default:
	}
	select {
	case <-h.entry.gone:
		return nil
	case <-h.entry.parked:
		return fail(ErrBusy)
	case <-ctx.Done():
		return fail(ctx.Err())
	}
}
