package mount

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What is done with mount(2), where newer calls are missing.

// changeAttached changes the flags of a detached mount without mount_setattr: it is
// attached, changed, and cloned again. The descriptor is closed.
func (k *kernel) changeAttached(fd int, p *plan) (clone int, err error) {
	m, err := describe(fd)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	path, err := k.newPoint(m.dir)
	if err != nil {
		return -1, err
	}
	defer os.Remove(path)
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return -1, fmt.Errorf("move_mount: %w", err)
	}
	recursive := uint(0)
	if p.recursive {
		recursive = unix.AT_RECURSIVE
	}
	if err = changeOld(path, p); err == nil {
		clone, err = cloneTree(unix.AT_FDCWD, path, recursive)
	}
	if detach := unix.Unmount(path, unix.MNT_DETACH); err == nil && detach != nil {
		_ = unix.Close(clone)
		err = fmt.Errorf("umount: %w", detach)
	}
	if err != nil {
		return -1, err
	}
	return clone, nil
}

// changeOld sets propagation and flags of an attached bind with mount(2).
func changeOld(path string, p *plan) error {
	recursive := uintptr(0)
	if p.recursive {
		recursive = unix.MS_REC
	}
	if err := unix.Mount("", path, "", unix.MS_PRIVATE|recursive, ""); err != nil {
		return fmt.Errorf("making %s private: %w", path, err)
	}
	if p.attr == 0 {
		return nil
	}
	// mount(2) changes one mount at a time, and sets all its flags anew.
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return err
	}
	// The flags of statfs that mount(2) knows have the same values.
	same := uintptr(st.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RDONLY)
	if err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|same|oldAttrs(p.attr), ""); err != nil {
		return fmt.Errorf("setting the flags of %s: %w", path, err)
	}
	return nil
}

// makeOld mounts with mount(2), at a place of its own.
func (k *kernel) makeOld(p *plan, source, kind string, l *layers, place *Namespace) (*master, error) {
	dir := true
	if kind == "bind" {
		st, err := os.Stat(source)
		if err != nil {
			return nil, err
		}
		dir = st.IsDir()
	}
	path, err := k.newPoint(dir)
	if err != nil {
		return nil, err
	}
	err = func() error {
		if kind == "bind" {
			flags := uintptr(unix.MS_BIND)
			if p.recursive {
				flags |= unix.MS_REC
			}
			if err := unix.Mount(source, path, "", flags, ""); err != nil {
				return fmt.Errorf("mount --bind %s: %w", source, err)
			}
			if err := changeOld(path, p); err != nil {
				_ = unix.Unmount(path, unix.MNT_DETACH)
				return err
			}
			return nil
		}
		data, err := oldData(p, l)
		if err != nil {
			return err
		}
		if l != nil {
			// The names of the layers are numbers, to be found here.
			if err := unix.Chdir("/proc/thread-self/fd"); err != nil {
				return err
			}
			defer func() { _ = unix.Chdir("/") }()
		}
		flags := oldAttrs(p.attr)
		if p.kind == "erofs" {
			flags |= unix.MS_RDONLY
		}
		if err := p.create(func() error { return unix.Mount(source, path, kind, flags, data) }); err != nil {
			return fmt.Errorf("%s: mount(2): %w", p, err)
		}
		return nil
	}()
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	return k.settleAt(path, place)
}

// oldData are the options of a file system as mount(2) takes them.
func oldData(p *plan, l *layers) (string, error) {
	var parts []string
	for _, o := range p.params {
		if o.flag {
			parts = append(parts, o.key)
		} else {
			parts = append(parts, o.key+"="+o.value)
		}
	}
	if l != nil {
		lower := strings.Join(l.numbers(l.lowers), ":")
		if len(l.data) > 0 {
			lower += "::" + strings.Join(l.numbers(l.data), "::")
		}
		parts = append(parts, "lowerdir="+lower)
		if l.upper >= 0 {
			parts = append(parts, "upperdir="+l.number(l.upper), "workdir="+l.number(l.work))
		}
	}
	data := strings.Join(parts, ",")
	if len(data) >= os.Getpagesize() {
		return "", fmt.Errorf("%s: %d bytes of options; mount(2) takes %d: %w", p, len(data), os.Getpagesize()-1, unix.EINVAL)
	}
	return data, nil
}

// number is what mount(2) is given for a layer, where the working directory is that of the descriptors.
func (l *layers) number(fd int) string { return l.name(fd, strconv.Itoa(fd)) }

func (l *layers) numbers(fds []int) []string {
	all := make([]string, len(fds))
	for i, fd := range fds {
		all[i] = l.number(fd)
	}
	return all
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
