package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/osthread"
)

// master is the one mount of a spec as the kernel has it.
type master struct {
	fd   int    // its root; of a detached mount, the mount itself
	dev  uint64 // the file system
	path string // where it is attached in the staging namespace; "" if it is detached
	dir  bool   // its root is a directory

	// release gives back what a Mounter has mounted; nil: it was none.
	release func() error

	// left is closed when the file system has left the kernel; nil: it is not known when.
	left <-chan struct{}

	// closed is closed when the descriptors of its layers are; nil: they are.
	closed <-chan struct{}

	// from is where it was made: a detached mount is cloned from there only.
	from *Namespace
}

// make mounts what a plan says. name is the source of file systems that have none, and of
// overlays; mounted are lower layers; claim is called with the directories of an overlay
// before they are used.
func (k *kernel) make(p *plan, name string, mounted []int, claim func([]dirID) error) (*master, error) {
	if server := k.served[p.kind]; server != nil {
		return k.makeServed(p, server)
	}
	if err := k.canMap(p); err != nil {
		return nil, err
	}
	place, err := k.place(p)
	if err != nil {
		return nil, err
	}
	if err := k.sameThere(p, place); err != nil {
		return nil, err
	}
	var m *master
	var l *layers
	err = place.Do(func() error {
		if p.kind == "overlay" {
			if l, err = openLayers(p, mounted); err != nil {
				return err
			}
			if err := claim(l.ids); err != nil {
				return err
			}
			if err := k.mapLayers(p, l); err != nil {
				return err
			}
		}
		m, err = k.makeHere(p, name, l, place)
		return err
	})
	if err != nil {
		if l != nil {
			l.close()
		}
		return nil, err
	}
	if l != nil {
		m.closed = l.closeSoon()
	}
	if p.upper != "" {
		k.watch(m)
	}
	return m, nil
}

// makeServed clones what a Mounter has mounted. That stays where it is as long as the clone.
func (k *kernel) makeServed(p *plan, server Mounter) (*master, error) {
	if !k.features.has(FeatureCloneDetached) {
		return nil, fmt.Errorf("%s: what others mount cannot be cloned by this kernel: %w", p, errors.ErrUnsupported)
	}
	if len(p.params) > 0 {
		return nil, fmt.Errorf("%s: the option %q: %w", p, p.params[0].key, errors.ErrUnsupported)
	}
	// The caller that waits for it can go; the mount is made all the same, and given back.
	path, release, err := server.Mount(context.Background(), Mount{Type: p.kind, Source: p.source})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	fd, err := k.cloneBind(&plan{kind: "bind", source: path, attr: p.attr, ids: p.ids})
	var m *master
	if err == nil {
		m, err = describe(fd)
	}
	if err != nil {
		return nil, errors.Join(err, release())
	}
	m.from, m.release = k.host, release
	return m, nil
}

// makeHere mounts in the namespace of the thread, which is place.
func (k *kernel) makeHere(p *plan, name string, l *layers, place *Namespace) (*master, error) {
	switch {
	case p.kind == "bind":
		fd, err := k.cloneBind(p)
		if err != nil {
			return nil, err
		}
		return k.hold(fd, place)
	case p.kind == "overlay" && !k.features.appends():
		return k.mountOverlay(p, name, l, place)
	case p.kind == "overlay", p.private():
		return k.makeFrom(p, name, l, place)
	}
	return k.makeOf(p, place)
}

// makeFrom makes a file system of a source, or an overlay with a name.
func (k *kernel) makeFrom(p *plan, source string, l *layers, place *Namespace) (*master, error) {
	fd, err := k.configure(p, source, l)
	if err != nil {
		return nil, err
	}
	return k.hold(fd, place)
}

// makeOf mounts a file system that has a source, by way of a loop device if it needs one.
func (k *kernel) makeOf(p *plan, place *Namespace) (*master, error) {
	once := func(source string) (*master, error) { return k.makeFrom(p, source, nil, place) }
	file := false
	if st, err := os.Stat(p.source); err == nil {
		file = st.Mode().IsRegular()
	}
	if p.kind == "erofs" && file && !p.loop && k.features.has(FeatureErofsFile) {
		source := p.source
		if len(source) > maxString {
			f, err := os.Open(source)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			source = fdPath(int(f.Fd()))
		}
		m, err := once(source)
		switch {
		case err == nil:
			return m, nil
		case errors.Is(err, unix.ENOTBLK):
			if !inMemory(p.source) {
				k.features.lacks(FeatureErofsFile, err)
			}
		case !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP):
			return nil, err
		}
		// The file system that holds the file may refuse; if the image is to blame, the
		// loop device is refused too.
		if looped, loopErr := k.looped(p, once); loopErr == nil {
			return looped, nil
		}
		return nil, err
	}
	if file && (p.loop || p.kind == "erofs") {
		return k.looped(p, once)
	}
	return once(p.source)
}

// inMemory tells whether a file is on a file system of which no kernel mounts an image
// without a loop device.
func inMemory(path string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false
	}
	return typeOf(&st) == unix.TMPFS_MAGIC || typeOf(&st) == unix.RAMFS_MAGIC || typeOf(&st) == unix.OVERLAYFS_SUPER_MAGIC
}

// looped mounts by way of a loop device, which ends with the mount.
func (k *kernel) looped(p *plan, once func(string) (*master, error)) (*master, error) {
	readOnly := p.kind == "erofs" || p.attr&attrReadOnly != 0
	dev, err := attachLoop(p.source, readOnly)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	return once(dev.Name())
}

// cloneBind makes a detached clone of what is at the source.
func (k *kernel) cloneBind(p *plan) (int, error) {
	recursive := uint(0)
	if p.recursive {
		recursive = unix.AT_RECURSIVE
	}
	fd, err := cloneTree(unix.AT_FDCWD, p.source, recursive)
	if err != nil {
		return -1, fmt.Errorf("open_tree %s: %w", p.source, err)
	}
	// Private: what is mounted below the clone must not show below the source.
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|recursive, &unix.MountAttr{
		Attr_set: newAttrs(p.attr), Attr_clr: clearedAttrs(p.attr), Propagation: unix.MS_PRIVATE,
	})
	if err != nil {
		err = fmt.Errorf("mount_setattr %s: %w", p.source, err)
	} else {
		err = k.mapIDs(p, fd, recursive)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// maxString is the longest value that fsconfig takes.
const maxString = 255

// configure makes a file system with fsopen, and returns its detached mount.
func (k *kernel) configure(p *plan, source string, l *layers) (int, error) {
	fs, err := unix.Fsopen(p.kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen %s: %w", p.kind, err)
	}
	defer unix.Close(fs)
	set := func(key, value string) error {
		if len(value) > maxString {
			return fmt.Errorf("%s: the value of %s has %d bytes; %d is the most: %w", p, key, len(value), maxString, unix.EINVAL)
		}
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return said(fmt.Sprintf("%s: %s=%s", p, key, value), fs, err)
		}
		return nil
	}
	if err := set("source", source); err != nil {
		return -1, err
	}
	for _, o := range p.params {
		if !o.flag {
			err = set(o.key, o.value)
		} else if err = unix.FsconfigSetFlag(fs, o.key); err != nil {
			err = said(fmt.Sprintf("%s: %s", p, o.key), fs, err)
		}
		if err != nil {
			return -1, err
		}
	}
	if l != nil {
		if err := k.configureLayers(fs, p, l); err != nil {
			return -1, err
		}
	}
	if p.kind == "erofs" || p.kind != "overlay" && p.attr&attrReadOnly != 0 {
		if err := unix.FsconfigSetFlag(fs, "ro"); err != nil {
			return -1, said(p.String()+": ro", fs, err)
		}
	}
	if err := p.create(func() error { return unix.FsconfigCreate(fs) }); err != nil {
		return -1, said(p.String(), fs, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(newAttrs(p.attr)))
	if err != nil {
		return -1, said(p.String()+": fsmount", fs, err)
	}
	if p.kind != "overlay" {
		if err := k.mapIDs(p, fd, 0); err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
	}
	return fd, nil
}

// create calls what makes the file system, as the one whom the kernel is to take for its mounter.
func (p *plan) create(do func() error) error {
	if p.kind != "overlay" {
		return do()
	}
	mounter := do
	if p.ids.Set() {
		// It makes files in its work directory as the one who mounts it, and mounts itself read-only without an error
		// if it cannot.
		mounter = func() error { return p.ids.Do(do) }
	}
	// The file system below an overlay sees its mounter as the writer. With this capability ext4 would refuse nothing
	// that is beyond a quota, and give away the blocks that it reserves.
	return osthread.Without(unix.CAP_SYS_RESOURCE, mounter)
}

// hold makes a master of a detached mount that the thread, which is in place, has made. It stays detached, or is
// attached in the staging namespace.
func (k *kernel) hold(fd int, place *Namespace) (*master, error) {
	m, err := describe(fd)
	if err != nil {
		return nil, err
	}
	if m.from = place; k.features.has(FeatureCloneDetached) {
		return m, nil
	}
	attach := func() error {
		path, err := k.newPoint(m.dir)
		if err != nil {
			return err
		}
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			_ = os.Remove(path)
			return fmt.Errorf("move_mount: %w", err)
		}
		m.path = path
		return nil
	}
	if m.from, err = k.stagingNamespace(); err == nil {
		if m.from == place {
			err = attach()
		} else {
			err = m.from.Do(attach)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return m, nil
}

// describe looks at the root of a mount; on an error the descriptor is closed.
func describe(fd int) (*master, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("looking at a mount: %w", err)
	}
	return &master{fd: fd, dev: deviceOf(&st), dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}

// newPoint makes an empty mount point for a master.
func (k *kernel) newPoint(dir bool) (string, error) {
	return makePoint(filepath.Join(k.dir, mastersDir), k.prefix+strconv.FormatUint(k.points.Add(1), 10), dir)
}

func makePoint(parent, name string, dir bool) (string, error) {
	path := filepath.Join(parent, name)
	if dir {
		return path, os.Mkdir(path, 0o700)
	}
	return path, os.WriteFile(path, nil, 0o600)
}

// newAttrs are flags for fsmount and mount_setattr.
func newAttrs(a attr) uint64 {
	var flags uint64
	for _, f := range attrTable {
		if a&f.attr != 0 {
			flags |= f.new
		}
	}
	return flags
}

// oldAttrs are flags for mount(2).
func oldAttrs(a attr) uintptr {
	var flags uintptr
	for _, f := range attrTable {
		if a&f.attr != 0 {
			flags |= f.old
		}
	}
	return flags
}

// clearedAttrs are what mount_setattr must clear so that the access time can be set.
func clearedAttrs(a attr) uint64 {
	if a&(attrNoAtime|attrStrictAtime) != 0 {
		return unix.MOUNT_ATTR__ATIME
	}
	return 0
}

var attrTable = []struct {
	attr attr
	new  uint64
	old  uintptr
}{
	{attrReadOnly, unix.MOUNT_ATTR_RDONLY, unix.MS_RDONLY},
	{attrNoSuid, unix.MOUNT_ATTR_NOSUID, unix.MS_NOSUID},
	{attrNoDev, unix.MOUNT_ATTR_NODEV, unix.MS_NODEV},
	{attrNoExec, unix.MOUNT_ATTR_NOEXEC, unix.MS_NOEXEC},
	{attrNoAtime, unix.MOUNT_ATTR_NOATIME, unix.MS_NOATIME},
	{attrNoDirAtime, unix.MOUNT_ATTR_NODIRATIME, unix.MS_NODIRATIME},
	{attrStrictAtime, unix.MOUNT_ATTR_STRICTATIME, unix.MS_STRICTATIME},
	{attrNoSymFollow, unix.MOUNT_ATTR_NOSYMFOLLOW, unix.MS_NOSYMFOLLOW},
}
