package base

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// give sets the attributes of what is called base in dir and open as fd, for reading, writing, or as a place only.
func (t *tree) give(fd, dir int, base string, a attributes) error {
	if err := t.chown(dir, base, &a); err != nil {
		return err
	}
	if err := t.times(dir, base, a.mtime); err != nil { // before the mode, with which an ordinary user may not get in any more
		return err
	}
	return t.others(fd, a)
}

// chown gives a file to its owner. Without the privilege it takes setuid and setgid away from a: they would be
// somebody else's.
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

// readable lets an ordinary user read what is his, bits of mode that it needs.
func (t *tree) readable(a *attributes, bits uint32) {
	if !t.canChown && a.mode&bits != bits {
		a.mode |= bits
		t.left.Modes++
	}
}

// others sets mode and extended attributes, after the owner: that takes setuid and capabilities away.
func (t *tree) others(fd int, a attributes) error {
	path := fdPath(fd)
	for name, value := range a.xattrs { // before the mode, with which an ordinary user may not write any more
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
