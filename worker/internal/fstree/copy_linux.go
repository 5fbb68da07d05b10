package fstree

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// copier copies a tree, without paths: see descent.
type copier struct {
	ctx      context.Context
	from, to descent
	todo     [][]string // for each level, directories that are still to do
	dirents  []byte
	links    map[inode]*linked // files with several names that have got some
	stash    int               // the directory with one more name for each of these
	linked   uint64            // that have all their names
	noClone  bool              // the file system cannot share blocks
}

// linked is a file of which not all names are made.
type linked struct {
	number uint64 // its name in the stash
	left   uint64 // names that can still come
}

// Copy copies the tree at from, a directory, to the directory to, which is there and empty: content,
// owners, modes, times, extended attributes, hard links, devices. Where the file system can,
// blocks are shared. A tree may be of any depth.
func Copy(ctx context.Context, from, to string) error {
	c := copier{ctx: ctx, links: map[inode]*linked{}, dirents: make([]byte, 1<<15), stash: -1}
	defer c.from.end()
	defer c.to.end()
	err := c.from.begin(from)
	if err == nil {
		err = c.to.begin(to)
	}
	if err == nil {
		err = c.tree()
	}
	if err != nil {
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

func (c *copier) tree() error {
	stash, name, err := c.openStash()
	if err != nil {
		return err
	}
	c.stash = stash
	defer func() { _ = unix.Close(stash) }()
	if err := c.list(); err != nil {
		return err
	}
	for len(c.todo) > 0 {
		names := &c.todo[len(c.todo)-1]
		if len(*names) == 0 {
			if err := c.leave(name); err != nil {
				return err
			}
			continue
		}
		name := (*names)[len(*names)-1]
		*names = (*names)[:len(*names)-1]
		if err := unix.Mkdirat(c.to.fd(), name, 0o700); err != nil {
			return &os.PathError{Op: "mkdir", Path: name, Err: err}
		}
		for _, d := range []*descent{&c.from, &c.to} {
			if err := d.down(name); err != nil {
				return &os.PathError{Op: "open", Path: name, Err: err}
			}
		}
		if err := c.list(); err != nil {
			return err
		}
	}
	return nil
}

// openStash makes the directory in which files with several names have one more until all others are made,
// so that they can be found again however deep they lie.
func (c *copier) openStash() (fd int, name string, err error) {
	name = ".links-" + rand.Text() // which is unused: it is random
	if err := unix.Mkdirat(c.to.fd(), name, 0o700); err != nil {
		return -1, "", &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	fd, err = unix.Openat(c.to.fd(), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return fd, name, err
}

// list copies what is in the deepest directory, and notes the directories in it.
func (c *copier) list() error {
	var dirs []string
	err := entriesOf(c.ctx, c.from.fd(), c.dirents, func(name string) error {
		isDir, err := c.entry(name)
		if isDir {
			dirs = append(dirs, name)
		}
		return err
	})
	c.todo = append(c.todo, dirs)
	return err
}

// leave gives the deepest directory its attributes, after all that changes its times, and goes up.
func (c *copier) leave(stash string) error {
	if len(c.todo) == 1 {
		for _, l := range c.links { // some have names outside of the tree
			if err := unix.Unlinkat(c.stash, l.name(), 0); err != nil {
				return err
			}
		}
		if err := unix.Unlinkat(c.to.fd(), stash, unix.AT_REMOVEDIR); err != nil {
			return err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(c.from.fd(), &st); err != nil {
		return err
	}
	if err := attributes(c.from.path("."), c.to.path("."), &st, nil); err != nil {
		return err
	}
	c.todo = c.todo[:len(c.todo)-1]
	return errors.Join(c.from.up(), c.to.up())
}

func (l *linked) name() string { return strconv.FormatUint(l.number, 10) }

// entry copies what has a name in the deepest directory, unless it is a directory.
func (c *copier) entry(name string) (isDir bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(c.from.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, &os.PathError{Op: "lstat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return true, nil
	}
	i := inode{st.Dev, st.Ino}
	if l := c.links[i]; l != nil {
		return false, c.link(i, l, name)
	}
	if err := c.make(name, &st); err != nil {
		return false, err
	}
	if st.Nlink < 2 {
		return false, nil
	}
	l := &linked{number: uint64(len(c.links)) + c.linked, left: uint64(st.Nlink) - 1} //nolint:unconvert // its type is another on other processors
	c.links[i] = l
	return false, unix.Linkat(c.to.fd(), name, c.stash, l.name(), 0)
}

// link gives a file that was copied another name. The last one is that in the stash: it may have as many as
// the file system allows.
func (c *copier) link(i inode, l *linked, name string) error {
	if l.left--; l.left > 0 {
		return unix.Linkat(c.stash, l.name(), c.to.fd(), name, 0)
	}
	delete(c.links, i)
	c.linked++
	return unix.Renameat(c.stash, l.name(), c.to.fd(), name)
}

// make copies a file that has got no name yet.
func (c *copier) make(name string, st *unix.Stat_t) error {
	from, to := c.from.path(name), c.to.path(name)
	switch st.Mode & unix.S_IFMT {
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
	return attributes(from, to, st, nil)
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
	// Before the mode, with which an unprivileged user may not write any more.
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
