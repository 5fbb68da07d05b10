package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/idmap"
	"holdfast/worker/internal/mountinfo"
)

// This file has mounts that show ids as others (the option idmap): a mount of its own gets the attribute before it is
// used. An overlay cannot have it, so its layers are reached through clones that have it.

// UserNamespace is the user namespace with the ids of a mount with the option idmap=BASE:COUNT. It belongs to the
// manager, and in the kernel to root.
func (m *Manager) UserNamespace(base, count uint32) (*os.File, error) {
	file, err := m.kernel.userNamespace(idmap.Map{Base: base, Count: count})
	if err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	return file, nil
}

// CanMapIDs is why the ids of a mount on a directory cannot be mapped; nil if they can.
func (m *Manager) CanMapIDs(dir string, base, count uint32) error {
	p := &plan{kind: "overlay", ids: idmap.Map{Base: base, Count: count}, lowers: []string{dir}}
	err := m.kernel.canMap(p)
	if err == nil {
		var fd int
		if fd, err = m.kernel.mapClone(p, unix.AT_FDCWD, dir); err == nil {
			err = unix.Close(fd)
		}
	}
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	return nil
}

// CanShowIDs is why what is at a path of the machine, with all that is mounted below it, cannot be mounted with ids
// that are mapped; nil if it can.
func (m *Manager) CanShowIDs(path string, base, count uint32) error {
	p := &plan{kind: "bind", source: path, recursive: true, ids: idmap.Map{Base: base, Count: count}}
	err := m.kernel.canMap(p)
	if err == nil {
		var fd int
		if fd, err = cloneTree(unix.AT_FDCWD, path, unix.AT_RECURSIVE); err == nil {
			err = errors.Join(m.kernel.mapIDs(p, fd, unix.AT_RECURSIVE), unix.Close(fd))
		}
	}
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	return nil
}

// userNamespace is made when it is first asked for.
func (k *kernel) userNamespace(ids idmap.Map) (*os.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.users[ids]; f != nil {
		return f, nil
	}
	f, err := ids.Namespace(0)
	if err != nil {
		return nil, err
	}
	if k.users == nil {
		k.users = map[idmap.Map]*os.File{}
	}
	k.users[ids] = f
	return f, nil
}

func (k *kernel) closeUsers() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.users {
		_ = f.Close()
	}
	k.users = nil
}

// canMap is why a plan with ids cannot be mounted by this kernel: mounts that have ids mapped are never attached
// before.
func (k *kernel) canMap(p *plan) error {
	if !p.ids.Set() {
		return nil
	}
	if !k.features.has(FeatureCloneDetached) || p.kind == "overlay" && !k.features.has(FeatureLayerFD) {
		return fmt.Errorf("%s: ids are not mapped by this kernel: %w", p, errors.ErrUnsupported)
	}
	return nil
}

// mapIDs has a detached mount show the ids of a plan, if it has any.
func (k *kernel) mapIDs(p *plan, fd int, recursive uint) error {
	if !p.ids.Set() {
		return nil
	}
	users, err := k.userNamespace(p.ids)
	if err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|recursive, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())})
	switch err {
	case nil:
		return nil
	case unix.EINVAL, unix.EPERM, unix.ENOSYS: // a file system that cannot do it, or ids that are mapped already
		return fmt.Errorf("%s: its ids cannot be mapped: %w: %w", p, err, errors.ErrUnsupported)
	}
	return fmt.Errorf("%s: mapping its ids: %w", p, err)
}

// mapClone makes a detached clone of a mount, from a directory of it on, that shows the ids of a plan.
func (k *kernel) mapClone(p *plan, dir int, path string) (int, error) {
	fd, err := cloneTree(dir, path, 0)
	if err != nil {
		return -1, fmt.Errorf("%s: open_tree: %w", p, err)
	}
	if err := k.mapIDs(p, fd, 0); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// mapLayers exchanges the layers of an overlay for the same in clones. One clone of the mount that the directory above
// all of them is on serves those: upper and work directory have to be in the same mount, and there can be hundreds of
// others. It is a clone of the whole mount so that mountinfo shows paths of layers as they are on their file system.
func (k *kernel) mapLayers(p *plan, l *layers) error {
	if !p.ids.Set() {
		return nil
	}
	paths := p.paths() // in the order of l.ids
	for i := range paths {
		paths[i] = filepath.Clean(paths[i])
	}
	above, common := -1, mountOf(commonDir(paths))
	if common != "" {
		fd, err := k.mapClone(p, unix.AT_FDCWD, common)
		if err != nil {
			return err
		}
		above = fd
	}
	mapped, direct := make([]int, len(paths)), l.opened
	if above >= 0 { // it must be there as long as its directories are
		l.opened = append(slices.Clone(direct), above)
	}
	for i, path := range paths {
		fd := openSame(above, strings.TrimPrefix(path, common), l.ids[i])
		if fd < 0 {
			if l.ids[i].use == usedAbove {
				return fmt.Errorf("%s: %s is not on the mount of %s: %w", p, path, common, errors.ErrUnsupported)
			}
			var err error
			if fd, err = k.mapClone(p, direct[i], ""); err != nil {
				return err
			}
		}
		l.opened = append(l.opened, fd)
		mapped[i] = fd
	}
	below := len(l.lowers) - len(p.lowers)
	for i, fd := range l.lowers[:below] {
		clone, err := k.mapClone(p, fd, "")
		if err != nil {
			return err
		}
		l.opened = append(l.opened, clone)
		l.lowers[i] = clone
	}
	rest := mapped[copy(l.lowers[below:], mapped):]
	rest = rest[copy(l.data, rest):]
	if l.upper >= 0 {
		l.upper, l.work = rest[0], rest[1]
	}
	return nil
}

// openSame opens a directory by its path in a mount, -1 unless it is the one that was opened before.
func openSame(above int, path string, want dirID) int {
	if above < 0 {
		return -1
	}
	fd, err := unix.Openat2(above, "./"+strings.TrimPrefix(path, "/"), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV})
	if err != nil {
		return -1
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || deviceOf(&st) != want.dev || st.Ino != want.ino {
		_ = unix.Close(fd)
		return -1
	}
	return fd
}

// commonDir is the lowest directory above all of some absolute paths, which is none of them; "" if there are none.
func commonDir(paths []string) string {
	common := ""
	for i, path := range paths {
		dir := filepath.Dir(path)
		if i == 0 {
			common = dir
		}
		for !under(dir, common) {
			common = filepath.Dir(common)
		}
	}
	return common
}

// mountOf is the root directory of the mount that a directory is on; "" if there is no directory.
func mountOf(dir string) string {
	id, ok := mountinfo.IDAt(dir)
	for ok && dir != "/" {
		above := filepath.Dir(dir)
		if next, known := mountinfo.IDAt(above); !known || next != id {
			break
		}
		dir = above
	}
	return dir
}

// layerPath is the path of a layer of which mountinfo shows one on its file system. It can be that of the layer
// already, or lack what is above the mount on which a directory of keep is.
func layerPath(shown string, keep []string) string {
	if !filepath.IsAbs(shown) || shown == "/" {
		return shown
	}
	for _, dir := range keep {
		if under(shown, dir) {
			return shown
		}
		for rest := dir; rest != ""; {
			_, rest, _ = strings.Cut(rest[1:], "/")
			if rest != "" {
				rest = "/" + rest
			}
			if path := dir + strings.TrimPrefix(shown, rest); strings.HasPrefix(shown+"/", rest+"/") && isDir(path) {
				return path
			}
		}
	}
	return shown
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
