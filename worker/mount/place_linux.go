package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// A mount is made in the host's namespace, or in the attic, and stays detached or is attached in the attic.

// place is the namespace in which a plan is mounted: the host's, where its paths are what the caller means, if the mount is not to be
// seen there meanwhile. The lower layers of an overlay that are mounts must be in the namespace of who mounts it.
func (k *kernel) place(p *plan) (*Namespace, error) {
	switch {
	case p.kind == "bind" && k.ways.clones() && k.ways.has(CallMountSetattr):
		return k.host, nil
	case p.kind == "overlay" && k.ways.detached() && k.ways.appends():
		return k.host, nil
	case p.kind != "bind" && p.kind != "overlay" && k.ways.configures():
		return k.host, nil
	}
	return k.attic()
}

// sameThere is an error if a path of the plan is something else in the namespace where it is mounted: the directory below a file
// system that is mounted elsewhere than at the directories to keep, or was mounted later. So is what is mounted below a recursive bind,
// and what a bind inherits, which is how its source is mounted.
func (k *kernel) sameThere(p *plan, place *Namespace) error {
	if place == k.host {
		return nil
	}
	paths := slices.DeleteFunc(p.paths(), func(path string) bool { return !filepath.IsAbs(path) })
	below := func() error {
		if !p.recursive {
			return nil
		}
		points, err := pointsBelow(p.source)
		paths = append(paths, points...)
		return err
	}
	if err := errors.Join(below(), place.Do(below)); err != nil {
		return err
	}
	look := func() []seen {
		all := make([]seen, len(paths))
		for i, path := range paths {
			all[i] = lookAt(path, p.kind == "bind")
		}
		return all
	}
	here := look()
	return place.Do(func() error {
		for i, there := range look() {
			if here[i] != there {
				return fmt.Errorf("%s is on a file system of its own, or was mounted otherwise since: this kernel mounts nothing of it, unless a directory in "+
					"Options.Keep leads to it when the manager is opened: %w", paths[i], errors.ErrUnsupported)
			}
		}
		return nil
	})
}

// seen is what a path leads to in the namespace of a thread, or why it cannot be known.
type seen struct {
	dev, ino uint64
	flags    uintptr // of the mount, those that keep from something
	err      error
}

func lookAt(path string, flags bool) (s seen) {
	var st unix.Stat_t
	if s.err = unix.Stat(path, &st); s.err != nil {
		return s
	}
	s.dev, s.ino = deviceOf(&st), st.Ino
	if flags {
		var fs unix.Statfs_t
		s.err = unix.Statfs(path, &fs)
		s.flags = uintptr(fs.Flags) & (unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	}
	return s
}

// pointsBelow lists where something is mounted below a path, which may be a symbolic link, in the namespace of the thread. That nothing
// is there is no error.
func pointsBelow(path string) ([]string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, nil //nolint:nilerr // whether it is there is seen elsewhere
	}
	return listBelow(real)
}

// settle makes a master of a detached mount, made in place, of which the thread is one: it stays so, or is attached in the attic.
func (k *kernel) settle(fd int, place *Namespace) (*master, error) {
	m, err := describe(fd)
	if err != nil {
		return nil, err
	}
	if m.from = place; k.ways.detached() {
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
	if m.from, err = k.attic(); err == nil {
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

// settleAt makes a master of a mount that is attached in place, of which the thread is one: it becomes detached where that can
// be.
func (k *kernel) settleAt(path string, place *Namespace) (*master, error) {
	undo := func(err error) (*master, error) {
		_ = unix.Unmount(path, unix.MNT_DETACH)
		_ = os.Remove(path)
		return nil, err
	}
	if k.ways.detached() {
		fd, err := cloneTree(unix.AT_FDCWD, path, 0)
		if err != nil {
			return undo(fmt.Errorf("open_tree: %w", err))
		}
		_, _ = undo(nil)
		m, err := describe(fd)
		if err == nil {
			m.from = place
		}
		return m, err
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return undo(err)
	}
	m, err := describe(fd)
	if err != nil {
		return undo(err)
	}
	m.path, m.from = path, place
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
