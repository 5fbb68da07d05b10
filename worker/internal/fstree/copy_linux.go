package fstree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// copier copies a tree.
type copier struct {
	ctx     context.Context
	links   map[inode]string // where files with several names went
	noClone bool             // the file system cannot share blocks
}

// Copy copies the tree at from, a directory, to the directory to, which is there and empty: content,
// owners, modes, times, extended attributes, hard links, devices. Where the file system can,
// blocks are shared.
func Copy(ctx context.Context, from, to string) error {
	c := copier{ctx: ctx, links: map[inode]string{}}
	if err := c.directory(from, to); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

// CopyAttributes gives to what from has: owner, mode, times, and extended attributes but for those that
// begin with one of without.
func CopyAttributes(from, to string, without ...string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: from, Err: err}
	}
	return attributes(from, to, &st, without)
}

func (c *copier) directory(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: from, Err: err}
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		entries, err := f.ReadDir(512)
		for _, e := range entries {
			if err := c.entry(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return attributes(from, to, &st, nil) // last: entries change the times
		}
		if err != nil {
			return err
		}
	}
}

func (c *copier) entry(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: from, Err: err}
	}
	format := st.Mode & unix.S_IFMT
	if format != unix.S_IFDIR && st.Nlink > 1 {
		i := inode{st.Dev, st.Ino}
		if first, again := c.links[i]; again {
			return os.Link(first, to)
		}
		c.links[i] = to
	}
	switch format {
	case unix.S_IFDIR:
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		return c.directory(from, to)
	case unix.S_IFREG:
		if err := c.file(from, to, st.Size); err != nil {
			return err
		}
	case unix.S_IFLNK:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		if err := os.Symlink(target, to); err != nil {
			return err
		}
	default: // devices, pipes, sockets
		if err := unix.Mknod(to, st.Mode, int(st.Rdev)); err != nil {
			return &os.PathError{Op: "mknod", Path: to, Err: err}
		}
	}
	return attributes(from, to, &st, nil)
}

// file copies the content of a regular file.
func (c *copier) file(from, to string, size int64) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return c.content(in, out, size)
}

// CopyContent copies what a regular file of a size has into one that is empty. Holes stay holes, and where the file
// system can, blocks are shared.
func CopyContent(ctx context.Context, in, out *os.File, size int64) error {
	c := copier{ctx: ctx}
	return c.content(in, out, size)
}

func (c *copier) content(in, out *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	if !c.noClone {
		if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
			return nil
		}
		c.noClone = true
	}
	return c.pieces(in, out, size)
}

// pieces copies what is data of a file, and leaves holes where it has holes.
func (c *copier) pieces(in, out *os.File, size int64) error {
	const most = 8 << 20
	for at := int64(0); at < size; {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		data, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if err == unix.ENXIO { // a hole up to the end
			break
		}
		end := size
		if err == nil {
			end, err = unix.Seek(int(in.Fd()), data, unix.SEEK_HOLE)
		}
		if err != nil { // a file system that does not know holes
			data, end = at, size
		}
		at = min(end, data+most)
		if _, err := in.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if n, err := io.Copy(out, io.LimitReader(in, at-data)); err != nil {
			return err
		} else if n == 0 { // shorter than it was
			break
		}
	}
	return out.Truncate(size)
}

// attributes gives to what from, with st, has.
func attributes(from, to string, st *unix.Stat_t, without []string) error {
	if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	// Before the mode, with which an ordinary user may not write any more.
	if err := xattrs(from, to, without); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK { // after chown, which takes setuid away
		if err := unix.Chmod(to, st.Mode&0o7777); err != nil {
			return &os.PathError{Op: "chmod", Path: to, Err: err}
		}
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, to, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "utimensat", Path: to, Err: err}
	}
	return nil
}

// xattrs copies extended attributes.
func xattrs(from, to string, without []string) error {
	names, err := readXattr(func(b []byte) (int, error) { return unix.Llistxattr(from, b) })
	if err == unix.ENOTSUP || len(names) == 0 && err == nil {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "listxattr", Path: from, Err: err}
	}
next:
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		for _, prefix := range without {
			if strings.HasPrefix(name, prefix) {
				continue next
			}
		}
		value, err := readXattr(func(b []byte) (int, error) { return unix.Lgetxattr(from, name, b) })
		if err == unix.ENODATA {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "getxattr " + name, Path: from, Err: err}
		}
		if err := unix.Lsetxattr(to, name, value, 0); err != nil {
			return &fs.PathError{Op: "setxattr " + name, Path: to, Err: err}
		}
	}
	return nil
}

// readXattr calls a function that tells the length it needs.
func readXattr(call func([]byte) (int, error)) ([]byte, error) {
	for {
		n, err := call(nil)
		if err != nil || n == 0 {
			return nil, err
		}
		b := make([]byte, n)
		if n, err = call(b); err != unix.ERANGE {
			return b[:max(n, 0)], err
		}
	}
}
