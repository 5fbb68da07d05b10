package image

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// give sets the attributes of what is called base in dir and open as fd, for reading, writing, or as a place only.
func (t *tree) give(fd, dir int, base string, a attributes) error {
	if err := t.chown(dir, base, &a); err != nil {
		return err
	}
	if err := t.times(dir, base, a.mtime); err != nil { // before the mode, with which an unprivileged user may not get in any more
		return err
	}
	return t.others(fd, a)
}

// chown gives a file to its owner. Without the privilege it takes setuid and setgid away from a: they would be
// those of another user.
func (t *tree) chown(dir int, base string, a *attributes) error {
	if t.canChown {
		err := unix.Fchownat(dir, base, a.uid, a.gid, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.EINVAL {
			return fmt.Errorf("owner %d:%d is not mapped in this user namespace: %w", a.uid, a.gid, err)
		}
		return err
	}
	if a.uid != os.Geteuid() || a.gid != os.Getegid() {
		t.left.Owners++
		a.mode &^= unix.S_ISUID | unix.S_ISGID
	}
	return nil
}

// readable lets an unprivileged user read its own files, by adding bits of mode.
func (t *tree) readable(a *attributes, bits uint32) {
	if !t.canChown && a.mode&bits != bits {
		a.mode |= bits
		t.left.Modes++
	}
}

// others sets mode and extended attributes, after the owner: that takes setuid and capabilities away.
func (t *tree) others(fd int, a attributes) error {
	path := fdPath(fd)
	for name, value := range a.xattrs { // before the mode, with which an unprivileged user may not write any more
		switch err := unix.Setxattr(path, name, []byte(value), 0); err {
		case nil:
		case unix.ENOTSUP, unix.EPERM, unix.EACCES:
			t.left.Xattrs++
		default:
			return fmt.Errorf("attribute %s: %w", shorten(name), err)
		}
	}
	if err := unix.Chmod(path, a.mode); err != nil {
		return fmt.Errorf("chmod: %w", err)
	}
	return nil
}

func (t *tree) times(dir int, base string, mtime time.Time) error {
	ts, err := unix.TimeToTimespec(mtime)
	if err != nil {
		return fmt.Errorf("%w: the time %v", ErrUnsafe, mtime)
	}
	if err := unix.UtimesNanoAt(dir, base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set times: %w", err)
	}
	return nil
}

// finish gives the directories their attributes: until then things were put into them. The deepest come first: others
// may not let an unprivileged user in any more.
func (t *tree) finish() error {
	t.forget()
	names := slices.Sorted(maps.Keys(t.dirs))
	for _, name := range slices.Backward(names) {
		if err := t.finishOne(name, t.dirs[name]); err != nil {
			return fmt.Errorf("directory %q: %w", shorten(name), err)
		}
	}
	return nil
}

func (t *tree) finishOne(name string, a attributes) error {
	fd, err := openBeneath(t.root, name)
	if err != nil {
		return through(name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !t.explicit[name] {
		return t.times(fd, ".", a.mtime)
	}
	if a.whole && (t.overlay || t.mine != nil) {
		if err := t.strip(fd, a); err != nil {
			return err
		}
	}
	t.readable(&a, 0o500)
	return t.give(fd, fd, ".", a)
}

// strip takes the extended attributes away that a directory has from lower layers and is not to have: those of an entry
// are all.
func (t *tree) strip(fd int, a attributes) error {
	path := fdPath(fd)
	list := make([]byte, 64<<10) // as many as there can be
	n, err := unix.Listxattr(path, list)
	if err == unix.ENOTSUP {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list attributes: %w", err)
	}
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if _, ok := a.xattrs[name]; ok || !strings.HasPrefix(name, "user.") || strings.HasPrefix(name, userMarks) {
			continue
		}
		if err := unix.Removexattr(path, name); err != nil && err != unix.ENODATA {
			return fmt.Errorf("remove the attribute %s: %w", shorten(name), err)
		}
	}
	return nil
}
