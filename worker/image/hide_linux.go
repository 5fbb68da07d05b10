package image

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/fstree"
)

// isWhiteout tells whether overlayfs takes it as one.
func isWhiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

// covered tells whether what the lower layers have under a name is hidden by a directory that leads to it.
func (t *tree) covered(name string) bool {
	for name != "." {
		name, _ = splitName(name)
		if t.opaques[name] {
			return true
		}
	}
	return false
}

// below looks for a name in the lower layers of an overlay, as far as they are not hidden. The caller closes the
// directory, if it is one.
func (t *tree) below(name string) (int, found, error) {
	if t.lower == nil || t.covered(name) {
		return -1, foundNothing, nil
	}
	return t.lower.open(name)
}

// isBelow tells whether there is something in the lower layers.
func (t *tree) isBelow(name string) (bool, error) {
	fd, kind, err := t.below(name)
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	return kind != foundNothing, err
}

// mark makes the directory called path hide what the lower layers have in it. Whiteouts in it would be seen then:
// they go.
func (t *tree) mark(fd int, path string) error {
	if t.lower == nil || t.opaques[path] {
		return nil
	}
	err := unix.Setxattr(fdPath(fd), t.marks+"opaque", []byte("y"), 0)
	if err == unix.EPERM && t.marks == trustedMarks { // in a user namespace, or as an unprivileged user
		t.marks = userMarks
		err = unix.Setxattr(fdPath(fd), t.marks+"opaque", []byte("y"), 0)
	}
	if err != nil {
		return fmt.Errorf("mark a directory as opaque: %w", err)
	}
	t.opaques[path] = true
	return t.purge(fd)
}

// purge removes the whiteouts in a directory and those below it.
func (t *tree) purge(fd int) error {
	entries, err := os.ReadDir(at(fd, "."))
	if err != nil {
		return err
	}
	for _, e := range entries {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		switch {
		case isWhiteout(&st):
			err = unix.Unlinkat(fd, e.Name(), 0)
		case e.IsDir():
			var sub int
			if sub, err = openBeneath(fd, e.Name()); err == nil {
				err = t.purge(sub)
				_ = unix.Close(sub)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hide hides what lower layers have of a name, not what this archive has.
func (t *tree) hide(ctx context.Context, name string) error {
	parent, base := splitName(name)
	if hidden, err := t.passable(parent); err != nil || hidden {
		return err
	}
	if t.overlay {
		return t.hideBelow(parent, base, name)
	}
	if t.mine == nil {
		return nil // there are no lower layers
	}
	dir, err := t.in(parent, false, time.Time{})
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	if err := t.keepTimes(dir, parent); err != nil {
		return err
	}
	t.made(parent)
	return t.drop(ctx, dir, base, name)
}

// passable refuses a directory that is reached by a symbolic link or a file, also where there is nothing to
// hide. hidden tells that there is a whiteout.
func (t *tree) passable(name string) (hidden bool, err error) {
	for path := ""; path != name; {
		rest := strings.TrimPrefix(strings.TrimPrefix(name, path), "/")
		part, _, _ := strings.Cut(rest, "/")
		path = strings.TrimPrefix(path+"/"+part, "/")
		fd, err := openBeneath(t.root, path)
		if err == nil {
			_ = unix.Close(fd)
			continue
		}
		if err == unix.ENOENT {
			return false, nil
		}
		var st unix.Stat_t
		if err == unix.ENOTDIR && t.overlay && unix.Fstatat(t.root, path, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && isWhiteout(&st) {
			return true, nil
		}
		return false, through(path, err)
	}
	return false, nil
}

// drop deletes name, but what is ours of it.
func (t *tree) drop(ctx context.Context, dir int, base, name string) error {
	if !t.ours(name) {
		if t.last == name || strings.HasPrefix(t.last, name+"/") {
			t.forget()
		}
		return fstree.Remove(ctx, at(dir, base))
	}
	fd, err := openBeneath(dir, base)
	if err != nil {
		if err == unix.ENOTDIR || err == unix.ELOOP {
			return nil // ours, and no directory
		}
		return through(name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	return t.dropIn(ctx, fd, name)
}

// dropIn deletes what is in a directory, but what is ours of it.
func (t *tree) dropIn(ctx context.Context, fd int, name string) error {
	entries, err := os.ReadDir(at(fd, "."))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := t.drop(ctx, fd, e.Name(), joinName(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// hideBelow puts a whiteout where a lower layer has something.
func (t *tree) hideBelow(parent, base, name string) error {
	if there, err := t.isBelow(name); err != nil || !there {
		return err
	}
	dir, err := t.in(parent, true, time.Time{})
	if err != nil {
		return err
	}
	if err := t.keepTimes(dir, parent); err != nil {
		return err
	}
	var st unix.Stat_t
	switch err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err == unix.ENOENT:
		if err := unix.Mknodat(dir, base, unix.S_IFCHR, 0); err != nil {
			return &os.PathError{Op: "make a whiteout", Path: shorten(name), Err: err}
		}
		return nil
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return nil // it hides what is below already
	}
	fd, err := openBeneath(dir, base)
	if err != nil {
		return through(name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	return t.mark(fd, name)
}

// opaque hides all that lower layers have in a directory.
func (t *tree) opaque(ctx context.Context, name string) error {
	if hidden, err := t.passable(name); err != nil || hidden {
		return err
	}
	if t.lower == nil && t.mine == nil {
		return nil
	}
	if t.overlay {
		if there, err := t.isBelow(name); err != nil || !there {
			return err
		}
	}
	fd, err := t.in(name, t.overlay, time.Time{})
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case t.overlay && name == ".":
		return t.hideAll()
	case t.overlay:
		return t.mark(fd, name)
	}
	if err := t.keepTimes(fd, name); err != nil {
		return err
	}
	t.made(name)
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) // the tree may forget fd
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(own) }()
	return t.dropIn(ctx, own, name)
}

// hideAll hides all that lower layers have: in the root of an overlay a mark means nothing.
func (t *tree) hideAll() error {
	names, err := t.lower.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := t.hideBelow(".", name, name); err != nil {
			return err
		}
	}
	return nil
}
