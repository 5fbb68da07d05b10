package treediff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Change is one path that differs.
type Change struct {
	Path string // begins with /
	Kind Kind

	// Before and After are what is there; nil if nothing is.
	Before, After *unix.Stat_t
}

// maxDepth is how deep trees may be: two directories are open for each level.
const maxDepth = 256

// Walk calls each for the paths at which the tree after differs from the tree before, in the order of their names, a
// directory before what is in it. Both are open directories; before can be nil, which is an empty tree. Type, mode,
// owner, extended attributes, and but for directories time, size and content count. Of an added directory all is told,
// of a deleted one only itself; one with a change in it is itself changed. No symbolic link is followed. The error of
// each ends the walk, and is returned.
func Walk(ctx context.Context, before, after *os.File, each func(Change) error) error {
	w := &walk{ctx: ctx, each: each}
	a, err := stat(after)
	if err != nil {
		return err
	}
	w.above = append(w.above, pending{name: "/", after: a, told: true}) // it has no name to tell
	if err = w.inside(before, after, 0); err != nil {
		return fmt.Errorf("%s: %w", w.path(""), err)
	}
	return nil
}

func stat(f *os.File) (*unix.Stat_t, error) {
	st := &unix.Stat_t{}
	return st, unix.Fstat(int(f.Fd()), st)
}

// walk is a comparison on its way.
type walk struct {
	ctx   context.Context
	each  func(Change) error
	above []pending // the directories on the way to where it is, that are in both trees
}

// pending is a directory of which it is not known yet whether something in it is changed.
type pending struct {
	name          string
	before, after *unix.Stat_t
	told          bool
}

func (w *walk) path(name string) string {
	parts := make([]string, 0, len(w.above)+1)
	for _, p := range w.above {
		parts = append(parts, p.name)
	}
	return path.Join(append(parts, name)...)
}

// tell tells of a change, after the directories above it.
func (w *walk) tell(c Change) error {
	if err := w.tellAbove(); err != nil {
		return err
	}
	return w.each(c)
}

func (w *walk) tellAbove() error {
	all := w.above
	defer func() { w.above = all }()
	for i := range all {
		if all[i].told {
			continue
		}
		all[i].told = true
		w.above = all[:i]
		if err := w.each(Change{Path: w.path(all[i].name), Kind: Changed, Before: all[i].before, After: all[i].after}); err != nil {
			return err
		}
	}
	return nil
}

// directory compares directories; the last of above is theirs.
func (w *walk) directory(before, after *os.File, depth int) error {
	top := &w.above[len(w.above)-1]
	same, err := sameHead(before, after, top.before, top.after)
	if err == nil && !same {
		err = w.tellAbove()
	}
	if err != nil {
		return err
	}
	return w.inside(before, after, depth)
}

// inside compares what is in directories; before can be nil.
func (w *walk) inside(before, after *os.File, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("directories nested more than %d deep", maxDepth)
	}
	old, err := namesIn(before)
	if err != nil {
		return err
	}
	now, err := namesIn(after)
	if err != nil {
		return err
	}
	for len(old) > 0 || len(now) > 0 {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		switch order := first(old, now); {
		case order < 0:
			err = w.deleted(before, old[0])
			old = old[1:]
		case order > 0:
			err = w.added(after, now[0], depth)
			now = now[1:]
		default:
			err = w.both(before, after, now[0], depth)
			old, now = old[1:], now[1:]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// first tells which of two lists has the next name: the first one (negative), the second (positive) or both.
func first(a, b []string) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return strings.Compare(a[0], b[0])
}

func namesIn(dir *os.File) ([]string, error) {
	if dir == nil {
		return nil, nil
	}
	names, err := dir.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// open opens what has a name in a directory, without reading or following it.
func open(dir *os.File, name string) (*os.File, *unix.Stat_t, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	st, err := stat(f)
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, st, nil
}

// reopen opens for reading what open has opened, which is a directory or a regular file.
func reopen(f *os.File) (*os.File, error) {
	return os.OpenFile(fdPath(f), os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

func isDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

func (w *walk) deleted(dir *os.File, name string) error {
	f, st, err := open(dir, name)
	if err != nil {
		return err
	}
	defer f.Close()
	return w.tell(Change{Path: w.path(name), Kind: Deleted, Before: st})
}

func (w *walk) added(dir *os.File, name string, depth int) error {
	f, st, err := open(dir, name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := w.tell(Change{Path: w.path(name), Kind: Added, After: st}); err != nil {
		return err
	}
	return w.addedIn(f, name, nil, st, depth)
}

// addedIn tells of what is in something that is new, if that is a directory.
func (w *walk) addedIn(f *os.File, name string, before, after *unix.Stat_t, depth int) error {
	if !isDir(after) {
		return nil
	}
	in, err := reopen(f)
	if err != nil {
		return err
	}
	defer in.Close()
	w.above = append(w.above, pending{name, before, after, true})
	err = w.inside(nil, in, depth+1)
	if err == nil { // otherwise the path is for the error
		w.above = w.above[:len(w.above)-1]
	}
	return err
}

// both compares what has the same name in both trees.
func (w *walk) both(before, after *os.File, name string, depth int) error {
	b, was, err := open(before, name)
	if err != nil {
		return err
	}
	defer b.Close()
	a, is, err := open(after, name)
	if err != nil {
		return err
	}
	defer a.Close()
	if !isDir(was) || !isDir(is) {
		same, err := w.same(b, a, was, is)
		if err != nil || same {
			return err
		}
		if err := w.tell(Change{w.path(name), Changed, was, is}); err != nil {
			return err
		}
		return w.addedIn(a, name, was, is, depth)
	}
	oldDir, err := reopen(b)
	if err != nil {
		return err
	}
	defer oldDir.Close()
	newDir, err := reopen(a)
	if err != nil {
		return err
	}
	defer newDir.Close()
	w.above = append(w.above, pending{name: name, before: was, after: is})
	err = w.directory(oldDir, newDir, depth+1)
	if err == nil {
		w.above = w.above[:len(w.above)-1]
	}
	return err
}

// same compares what is not a directory in both trees.
func (w *walk) same(b, a *os.File, was, is *unix.Stat_t) (bool, error) {
	if was.Mode != is.Mode || was.Mtim != is.Mtim || was.Size != is.Size || was.Rdev != is.Rdev {
		return false, nil
	}
	if untouched(was, is) {
		return true, nil
	}
	same, err := sameHead(b, a, was, is)
	if err != nil || !same {
		return false, err
	}
	switch is.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return w.sameContent(b, a)
	case unix.S_IFLNK:
		from, err := readlink(b)
		if err != nil {
			return false, err
		}
		to, err := readlink(a)
		return from == to, err
	}
	return true, nil
}

// untouched tells whether two files are one that both trees show: of an inode with its time of change, which no program
// can set. File systems that are made at once, such as an image, have none of their own: the other time is theirs.
func untouched(was, is *unix.Stat_t) bool {
	return was.Ino == is.Ino && was.Ctim == is.Ctim && was.Ctim != was.Mtim && was.Uid == is.Uid && was.Gid == is.Gid
}

// sameHead compares what all kinds of files have.
func sameHead(b, a *os.File, was, is *unix.Stat_t) (bool, error) {
	if was.Mode != is.Mode || was.Uid != is.Uid || was.Gid != is.Gid {
		return false, nil
	}
	if is.Mode&unix.S_IFMT == unix.S_IFLNK { // by the path of its descriptor it is followed
		return true, nil
	}
	old, err := attributes(b)
	if err != nil {
		return false, err
	}
	now, err := attributes(a)
	return slices.Equal(old, now), err
}

// attributes are the extended attributes of a file, but for those in which drivers keep notes.
func attributes(f *os.File) (all []string, err error) {
	name := fdPath(f)
	list, err := grown(func(b []byte) (int, error) { return unix.Listxattr(name, b) })
	if errors.Is(err, unix.ENOTSUP) || len(list) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "listxattr", Path: f.Name(), Err: err}
	}
	for _, key := range strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if strings.HasPrefix(key, "trusted.overlay.") || strings.HasPrefix(key, "user.overlay.") || strings.HasPrefix(key, "btrfs.") {
			continue
		}
		value, err := grown(func(b []byte) (int, error) { return unix.Getxattr(name, key, b) })
		if err != nil {
			return nil, &os.PathError{Op: "getxattr " + key, Path: f.Name(), Err: err}
		}
		all = append(all, key+"\x00"+string(value))
	}
	slices.Sort(all)
	return all, nil
}

// grown calls a function with more and more room.
func grown(get func([]byte) (int, error)) ([]byte, error) {
	for size := 256; ; size *= 4 {
		b := make([]byte, size)
		n, err := get(b)
		if err == unix.ERANGE && size <= 1<<20 {
			continue
		}
		if err != nil {
			return nil, err
		}
		return b[:n], nil
	}
}

func readlink(f *os.File) (string, error) {
	b := make([]byte, unix.PathMax+1)
	n, err := unix.Readlinkat(int(f.Fd()), "", b)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: f.Name(), Err: err}
	}
	return string(b[:n]), nil
}

const chunk = 1 << 17

// sameContent compares the bytes of regular files.
func (w *walk) sameContent(b, a *os.File) (bool, error) {
	old, err := reopen(b)
	if err != nil {
		return false, err
	}
	defer old.Close()
	now, err := reopen(a)
	if err != nil {
		return false, err
	}
	defer now.Close()
	one, two := make([]byte, chunk), make([]byte, chunk)
	for {
		if err := w.ctx.Err(); err != nil {
			return false, err
		}
		n, err1 := io.ReadFull(old, one)
		m, err2 := io.ReadFull(now, two)
		if !bytes.Equal(one[:n], two[:m]) {
			return false, nil
		}
		ended := errors.Is(err1, io.EOF) || errors.Is(err1, io.ErrUnexpectedEOF)
		if err1 != nil && !ended {
			return false, err1
		}
		if err2 != nil && !errors.Is(err2, io.EOF) && !errors.Is(err2, io.ErrUnexpectedEOF) {
			return false, err2
		}
		if ended {
			return true, nil
		}
	}
}
