package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/fstree"
)

// tree is the directory into which an archive is extracted. Everything in it is reached from
// a descriptor of its root, and never through a symbolic link, so nothing that is in it, or is put into it meanwhile,
// leads out of it.
//
// It is one of two kinds. In an overlay it is the upper directory: it has what this archive has and nothing
// else, and what lower layers have is hidden by marks. Otherwise it begins with what lower layers
// have, and what is hidden is deleted.
type tree struct {
	root    int
	overlay bool
	lower   *stack              // of an overlay; nil: there is nothing below
	mine    map[string]struct{} // what this archive has made or changed; nil: all that is there
	marks   string              // prefix of the extended attributes of overlayfs
	left    *LeftOut
	budget  *budget

	opaques map[string]bool // directories that hide what the lower layers have in them

	dirs     map[string]attributes // directories, which get these at the end
	explicit map[string]bool       // those of them that the archive has

	last     string // the directory that was opened last
	lastFD   int
	canChown bool
	ends     []func() // of what is held for it
}

// newTree takes over lower, unless it fails.
func newTree(root string, overlay, filled bool, lower *stack, left *LeftOut, b *budget) (*tree, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	t := &tree{
		root: fd, overlay: overlay, lower: lower, left: left, budget: b, lastFD: -1,
		opaques: map[string]bool{}, dirs: map[string]attributes{}, explicit: map[string]bool{}, canChown: os.Geteuid() == 0, marks: trustedMarks,
	}
	if filled {
		t.mine = map[string]struct{}{}
	}
	if err := unix.Access("/proc/self/fd", unix.X_OK); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("/proc is needed to extract archives: %w", err)
	}
	return t, nil
}

func (t *tree) close() {
	t.forget()
	_ = unix.Close(t.root)
	if t.lower != nil {
		t.lower.close()
	}
	for _, end := range t.ends {
		end()
	}
}

// forget closes the directory that was opened last: it may not be the one of that name any more.
func (t *tree) forget() {
	if t.lastFD >= 0 {
		_ = unix.Close(t.lastFD)
	}
	t.last, t.lastFD = "", -1
}

// openBeneath opens a directory below dir, which no part of name may lead out of.
func openBeneath(dir int, name string) (int, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for {
		fd, err := unix.Openat2(dir, name, how)
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// at is a path to name in an open directory, for calls that do not follow the last component.
func at(dir int, name string) string { return fdPath(dir) + "/" + name }

// in opens the directory of a clean name, and makes it, with those above it, if create is set.
// The descriptor belongs to the tree, and is good until the next call.
func (t *tree) in(name string, create bool, now time.Time) (int, error) {
	if t.lastFD >= 0 && t.last == name {
		return t.lastFD, nil
	}
	fd, err := openBeneath(t.root, name)
	if err != nil && create && (err == unix.ENOENT || err == unix.ENOTDIR) {
		fd, err = t.build(name, now)
	}
	if err != nil {
		return -1, through(name, err)
	}
	t.forget()
	t.last, t.lastFD = name, fd
	return fd, nil
}

// through explains why a directory could not be opened.
func through(name string, err error) error {
	switch err {
	case unix.ELOOP, unix.EXDEV, unix.ENOTDIR:
		return fmt.Errorf("%w: it leads through %s, which is a symbolic link or no directory", ErrUnsafe, shorten(name))
	case unix.ENOENT:
		return err
	}
	if errors.Is(err, ErrUnsafe) || errors.Is(err, ErrLimit) {
		return err
	}
	return &os.PathError{Op: "open directory", Path: shorten(name), Err: err}
}

// build makes the directories that lead to name and that the archive has not, or not yet, named. They have
// the attributes of those that lie below, or are root's.
func (t *tree) build(name string, now time.Time) (fd int, err error) {
	fd, path := t.root, ""
	for part := range strings.SplitSeq(name, "/") {
		path = strings.TrimPrefix(path+"/"+part, "/")
		next, err := openBeneath(fd, part)
		if err == unix.ENOENT || err == unix.ENOTDIR {
			next, err = t.buildOne(fd, part, path, now, err == unix.ENOTDIR)
		}
		if fd != t.root {
			_ = unix.Close(fd)
		}
		if err != nil {
			return -1, through(path, err)
		}
		fd = next
	}
	return fd, nil
}

// buildOne makes the directory part, called path as a whole, in dir. There may be something else there: a whiteout
// is replaced.
func (t *tree) buildOne(dir int, part, path string, now time.Time, there bool) (int, error) {
	hides := false
	if there {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, part, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return -1, err
		}
		if !t.overlay || !isWhiteout(&st) {
			return -1, unix.ENOTDIR
		}
		if err := unix.Unlinkat(dir, part, 0); err != nil {
			return -1, err
		}
		hides = true
	}
	below := -1
	if !hides {
		fd, kind, err := t.below(path)
		switch {
		case err != nil:
			return -1, err
		case kind == foundOther:
			return -1, unix.ENOTDIR
		case kind == foundDir:
			below = fd
			defer func() { _ = unix.Close(fd) }()
		}
	}
	if err := t.budget.entry(path); err != nil {
		return -1, err
	}
	if err := unix.Mkdirat(dir, part, 0o700); err != nil {
		return -1, err
	}
	t.made(path)
	fd, err := openBeneath(dir, part)
	if err != nil {
		return -1, err
	}
	if err := t.begin(fd, path, below, hides, now); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// begin notes what a directory that was just made is to have at the end.
func (t *tree) begin(fd int, path string, below int, hides bool, now time.Time) error {
	if hides {
		if err := t.mark(fd, path); err != nil {
			return err
		}
	}
	if below < 0 {
		a := attributes{mode: 0o755, mtime: now}
		if !t.canChown {
			a.uid, a.gid = os.Geteuid(), os.Getegid()
		}
		t.dirs[path], t.explicit[path] = a, true
		return nil
	}
	if err := fstree.CopyAttributes(at(below, "."), at(fd, "."), "trusted.overlay.", "user.overlay."); err != nil {
		return fmt.Errorf("attributes of %s: %w", path, err)
	}
	return t.keepTimes(fd, path)
}

// keepTimes notes the times of a directory that the archive does not name, which change as something is put into it.
func (t *tree) keepTimes(fd int, path string) error {
	if _, ok := t.dirs[path]; ok {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	t.dirs[path] = attributes{mode: st.Mode & 0o7777, uid: int(st.Uid), gid: int(st.Gid), mtime: time.Unix(st.Mtim.Unix())}
	if !t.canChown && st.Mode&0o700 != 0o700 { // for an unprivileged user, who has to write into it
		t.explicit[path] = true
		return unix.Chmod(fdPath(fd), st.Mode&0o7777|0o700)
	}
	return nil
}

// made notes that the archive has made or changed something.
func (t *tree) made(path string) {
	if t.mine == nil {
		return
	}
	for path != "." {
		if _, ok := t.mine[path]; ok {
			return
		}
		t.mine[path] = struct{}{}
		path, _ = splitName(path)
	}
}

// ours tells whether the archive has made or changed it.
func (t *tree) ours(path string) bool {
	if t.mine == nil {
		return true
	}
	_, ok := t.mine[path]
	return ok
}

// place prepares the making of name: it returns the directory for it, in which nothing has that name. hid tells that
// there was something in an overlay that hides what is below: a whiteout, or what came first in the archive.
func (t *tree) place(name string, now time.Time) (dir int, base string, hid bool, err error) {
	parent, base := splitName(name)
	dir, err = t.in(parent, true, now)
	if err != nil {
		return -1, "", false, err
	}
	if err := t.keepTimes(dir, parent); err != nil {
		return -1, "", false, err
	}
	var st unix.Stat_t
	err = unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == unix.ENOENT:
		err = nil
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		hid = t.overlay
		err = unix.Unlinkat(dir, base, 0)
	case t.ours(name):
		err = fmt.Errorf("%w: it replaces a directory of the same archive", ErrUnsafe)
	default:
		if err = fstree.Remove(context.Background(), at(dir, base)); err == nil {
			t.forget()
			dir, err = t.in(parent, false, now)
		}
	}
	if err != nil {
		return -1, "", false, err
	}
	t.made(name)
	return dir, base, hid, nil
}

// empty deletes what is in a tree, to make room for what is needed to give it up.
func empty(root string) error {
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		err = errors.Join(err, fstree.Remove(context.Background(), filepath.Join(root, e.Name())))
	}
	return err
}
