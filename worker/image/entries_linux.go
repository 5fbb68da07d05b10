package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/fstree"
)

// directory makes a directory, or gives one that is there other attributes.
func (t *tree) directory(name string, a attributes) error {
	if name == "." {
		t.dirs[name], t.explicit[name] = a, true
		return nil
	}
	parent, base := splitName(name)
	dir, err := t.in(parent, true, a.mtime)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	err = unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		t.made(name)
	} else {
		hid := false
		if dir, base, hid, err = t.place(name, a.mtime); err != nil {
			return err
		}
		if err := unix.Mkdirat(dir, base, 0o700); err != nil {
			return err
		}
		if hid {
			fd, err := t.in(name, false, a.mtime)
			if err != nil {
				return err
			}
			if err := t.mark(fd, name); err != nil {
				return err
			}
		}
	}
	t.dirs[name], t.explicit[name] = a, true
	return nil
}

// file makes a regular file of what r has. What is zeros becomes a hole.
func (t *tree) file(name string, a attributes, size int64, r io.Reader) (err error) {
	dir, base, _, err := t.place(name, a.mtime)
	if err != nil {
		return err
	}
	fd, err := unix.Openat(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "create", Path: shorten(name), Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := fill(f, size, r); err != nil {
		return err
	}
	t.readable(&a, 0o400)
	return t.give(fd, dir, base, a)
}

const zeroBlock = 4096

var zeros [zeroBlock]byte

// fill writes size bytes of r, and leaves out blocks of zeros.
func fill(f *os.File, size int64, r io.Reader) error {
	buf := make([]byte, min(256<<10, max(size, 1)))
	at, hole := int64(0), false
	for at < size {
		n, err := io.ReadFull(r, buf[:min(int64(len(buf)), size-at)])
		if err != nil {
			return malformed(err)
		}
		for from := 0; from < n; {
			to := from
			for to < n && string(buf[to:min(to+zeroBlock, n)]) != string(zeros[:min(zeroBlock, n-to)]) {
				to = min(to+zeroBlock, n)
			}
			if to > from {
				if _, err := f.WriteAt(buf[from:to], at+int64(from)); err != nil {
					return err
				}
			}
			if to < n {
				hole = true
				to = min(to+zeroBlock, n)
			}
			from = to
		}
		at += int64(n)
	}
	if hole {
		return f.Truncate(size)
	}
	return nil
}

func (t *tree) symlink(name, target string, a attributes) error {
	dir, base, _, err := t.place(name, a.mtime)
	if err != nil {
		return err
	}
	if err := unix.Symlinkat(target, dir, base); err != nil {
		return &os.PathError{Op: "symlink", Path: shorten(name), Err: err}
	}
	if err := t.chown(dir, base, &a); err != nil {
		return err
	}
	t.left.Xattrs += int64(len(a.xattrs)) // the kernel has none of these kinds on links
	return t.times(dir, base, a.mtime)
}

func (t *tree) node(name string, a attributes, kind byte, major, minor uint32) error {
	dir, base, _, err := t.place(name, a.mtime)
	if err != nil {
		return err
	}
	mode := map[byte]uint32{tar.TypeFifo: unix.S_IFIFO, tar.TypeChar: unix.S_IFCHR, tar.TypeBlock: unix.S_IFBLK}[kind]
	if err := unix.Mknodat(dir, base, mode|0o600, int(unix.Mkdev(major, minor))); err != nil {
		return &os.PathError{Op: "mknod", Path: shorten(name), Err: err}
	}
	fd, err := unix.Openat(dir, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: shorten(name), Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	return t.give(fd, dir, base, a)
}

// link makes name another name of a regular file.
func (t *tree) link(ctx context.Context, name, target string, now time.Time) error {
	from, kind, err := t.source(ctx, target, now)
	if err != nil {
		return fmt.Errorf("hard link to %q: %w", shorten(target), err)
	}
	defer func() { _ = unix.Close(from) }()
	if kind != unix.S_IFREG {
		return fmt.Errorf("%w: a hard link to %q, which is not a regular file", ErrUnsafe, shorten(target))
	}
	dir, base, _, err := t.place(name, now)
	if err != nil {
		return err
	}
	_, targetBase := splitName(target)
	if err := unix.Linkat(from, targetBase, dir, base, 0); err != nil {
		return &os.LinkError{Op: "link", Old: shorten(target), New: shorten(name), Err: err}
	}
	return nil
}

// source finds what a hard link leads to: the directory that it is in, which the caller closes, and its
// type. What is in a lower layer only is copied.
func (t *tree) source(ctx context.Context, name string, now time.Time) (dir int, kind uint32, err error) {
	parent, base := splitName(name)
	dir, err = t.in(parent, t.overlay, now)
	if err != nil {
		return -1, 0, err
	}
	if dir, err = unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return -1, 0, err
	}
	var st unix.Stat_t
	err = unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT && t.lower != nil && !t.covered(name) {
		if err = t.copyUp(ctx, dir, base, name); err == nil {
			err = unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
		}
	}
	if err == nil && t.overlay && isWhiteout(&st) {
		err = unix.ENOENT
	}
	if err != nil {
		_ = unix.Close(dir)
		if err == unix.ENOENT {
			err = fmt.Errorf("%w: there is no such file", ErrUnsafe)
		}
		return -1, 0, err
	}
	return dir, st.Mode & unix.S_IFMT, nil
}

// copyUp copies a regular file from the lower layers.
func (t *tree) copyUp(ctx context.Context, dir int, base, name string) (err error) {
	below, err := t.lower.find(name)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(below) }()
	in, err := os.Open(at(below, base))
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err == nil {
		err = t.budget.content(info.Size())
	}
	if err != nil {
		return err
	}
	fd, err := unix.Openat(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), name)
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := fstree.CopyContent(ctx, in, out, info.Size()); err != nil {
		return err
	}
	return fstree.CopyAttributes(at(below, base), at(dir, base), "trusted.overlay.", "user.overlay.")
}
