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
// system that is mounted elsewhere than at the directories to keep, or was mounted later.
func (k *kernel) sameThere(p *plan, place *Namespace) error {
	if place == k.host {
		return nil
	}
	paths := slices.DeleteFunc(p.paths(), func(path string) bool { return !filepath.IsAbs(path) })
	look := func() ([]unix.Stat_t, error) {
		found := make([]unix.Stat_t, len(paths))
		for i, path := range paths {
			if err := unix.Stat(path, &found[i]); err != nil && err != unix.ENOENT {
				return nil, fmt.Errorf("looking at %s: %w", path, err)
			}
		}
		return found, nil
	}
	here, err := look()
	if err != nil {
		return err
	}
	return place.Do(func() error {
		there, err := look()
		if err != nil {
			return err
		}
		for i := range here {
			if here[i].Dev != there[i].Dev || here[i].Ino != there[i].Ino {
				return fmt.Errorf("%s is on a file system of its own, of which this kernel mounts nothing, unless a directory in "+
					"Options.Keep leads to it when the manager is opened: %w", paths[i], errors.ErrUnsupported)
			}
		}
		return nil
	})
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
