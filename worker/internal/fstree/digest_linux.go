package fstree

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Digest gives a SHA-256 of the tree at path, a directory. Two trees have the same one if they have
// the same names, and by each name the same: type, permissions, owner, number of a
// device, target of a symbolic link, size and bytes of a regular file, extended attributes;
// and if the same names are the same file. That goes for the directory at path itself, but for
// its name. So whiteouts and opaque directories of overlayfs count.
//
// What does not count: times, holes (they are zeros), which inodes there are, names outside of the
// tree, and extended attributes that say something of where the tree is kept: see isPlace.
//
// The tree must not change meanwhile: ErrChanged, where that is noticed. Memory is taken in proportion to
// the number of names in the directories of one path, and of files with several names.
func Digest(ctx context.Context, path string, o DigestOptions) (sum [sha256.Size]byte, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return sum, &os.PathError{Op: "open", Path: path, Err: err}
	}
	t := treeDigest{digest: newDigest(ctx, o), dir: fd, links: map[inode]uint64{}}
	defer func() { _ = unix.Close(t.dir) }()
	t.text("holdfast tree 1")
	if err := t.walk(); err != nil {
		return sum, fmt.Errorf("digest of %s: %w", filepath.Join(path, t.path()), err)
	}
	return t.sum(), nil
}

// treeDigest has only one directory open, so a tree may be of any depth.
type treeDigest struct {
	*digest
	dir     int // the directory in which it is
	levels  []level
	links   map[inode]uint64 // numbers of files with several names
	entries uint64
	dirents []byte

	stamp     *Stamp          // is computed in place of the digest
	systems   map[uint64]bool // numbers of file systems that the stamp has looked at
	noSpecial bool            // ErrSpecial of what is neither directory, file nor symbolic link
	anyOwner  bool            // owners do not count
}

// level is a directory on the way to where the digest is.
type level struct {
	name  string
	inode inode
	names []string // that are still to do, in descending order
	doing string
}

// path is where the digest is, for errors.
func (t *treeDigest) path() string {
	path := ""
	for _, l := range t.levels {
		path = filepath.Join(path, l.name)
	}
	if n := len(t.levels); n > 0 {
		path = filepath.Join(path, t.levels[n-1].doing)
	}
	return path
}

// What follows an entry's name.
const (
	digestEntry = iota + 1
	digestLink
	digestEnd // of a directory
)

func (t *treeDigest) walk() error {
	if err := t.enter(""); err != nil {
		return err
	}
	for len(t.levels) > 0 {
		l := &t.levels[len(t.levels)-1]
		if len(l.names) == 0 {
			t.number(digestEnd)
			if err := t.leave(); err != nil {
				return err
			}
			continue
		}
		l.doing = l.names[len(l.names)-1]
		l.names = l.names[:len(l.names)-1]
		if err := t.entry(l.doing); err != nil {
			return err
		}
	}
	return nil
}

// enter begins with the directory that was opened as t.dir.
func (t *treeDigest) enter(name string) error {
	var st unix.Stat_t
	if err := unix.Fstat(t.dir, &st); err != nil {
		return err
	}
	if t.stamp != nil {
		if err := t.foreign(t.dir, st.Dev); err != nil {
			return err
		}
		if err := t.mark(name, &st); err != nil {
			return err
		}
	} else if err := t.head(name, &st, fileAttributes(t.dir)); err != nil {
		return err
	}
	names, err := t.names()
	t.levels = append(t.levels, level{name: name, inode: inode{st.Dev, st.Ino}, names: names})
	return err
}

// names are those in the directory.
func (t *treeDigest) names() (names []string, err error) {
	if t.dirents == nil {
		t.dirents = make([]byte, 1<<16)
	}
	for {
		if err := t.ctx.Err(); err != nil {
			return nil, err
		}
		n, err := unix.ReadDirent(t.dir, t.dirents)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(t.dirents[:n], -1, names)
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names, nil
}

// leave goes back to the directory above, if it is still the one that it was.
func (t *treeDigest) leave() error {
	t.levels = t.levels[:len(t.levels)-1]
	if len(t.levels) == 0 {
		return nil
	}
	fd, err := unix.Openat(t.dir, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	t.move(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if above := (inode{st.Dev, st.Ino}); above != t.levels[len(t.levels)-1].inode {
		return fmt.Errorf("a directory was moved: %w", ErrChanged)
	}
	return nil
}

func (t *treeDigest) move(to int) {
	_ = unix.Close(t.dir) // it was only read
	t.dir = to
}

// head hashes what all kinds of files have.
func (t *treeDigest) head(name string, st *unix.Stat_t, a attributesOf) error {
	t.entries++
	t.number(digestEntry)
	t.text(name)
	t.number(uint64(st.Mode))
	uid, gid := st.Uid, st.Gid
	if t.anyOwner {
		uid, gid = 0, 0
	}
	t.number(uint64(uid))
	t.number(uint64(gid))
	if err := t.attributes(a); err != nil {
		return err
	}
	return t.read(EntryBytes)
}

func isWhiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

// entry hashes what has a name in the directory; it enters a directory.
func (t *treeDigest) entry(name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(t.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	format := st.Mode & unix.S_IFMT
	if format == unix.S_IFDIR {
		fd, err := unix.Openat(t.dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.move(fd)
		return t.enter(name)
	}
	if t.stamp != nil {
		return t.mark(name, &st)
	}
	// Overlayfs makes one inode of several whiteouts or not, as it likes.
	if st.Nlink > 1 && !isWhiteout(&st) {
		i := inode{st.Dev, st.Ino}
		if first, again := t.links[i]; again {
			t.number(digestLink)
			t.text(name)
			t.number(first)
			return t.read(EntryBytes)
		}
		t.links[i] = t.entries + 1
	}
	switch format {
	case unix.S_IFREG:
		return t.file(name, &st)
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(t.dir, name, target)
		if err != nil {
			return err
		}
		if err := t.head(name, &st, t.nameAttributes(name)); err != nil {
			return err
		}
		t.text(string(target[:n]))
		return nil
	}
	if t.noSpecial {
		return ErrSpecial
	}
	if err := t.head(name, &st, t.nameAttributes(name)); err != nil {
		return err
	}
	if format == unix.S_IFCHR || format == unix.S_IFBLK {
		t.number(st.Rdev)
	}
	return nil
}

// file hashes a regular file.
func (t *treeDigest) file(name string, was *unix.Stat_t) error {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(t.dir, name, flags|unix.O_NOATIME, 0)
	if err == unix.EPERM { // a file of another user
		fd, err = unix.Openat(t.dir, name, flags, 0)
	}
	if err != nil {
		return err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (st.Dev != was.Dev || st.Ino != was.Ino) {
		err = ErrChanged
	}
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	return t.regular(fd, name)
}

// regular hashes a regular file that is open, and closes it.
func (t *treeDigest) regular(fd int, name string) error {
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := t.head(name, &st, fileAttributes(fd)); err != nil {
		return err
	}
	if t.options.Fresh {
		forget(f)
		defer forget(f)
	}
	return t.blocks(f, st.Size, func(at int64) (int64, error) {
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		switch err {
		case nil:
			return data, nil
		case unix.ENXIO:
			return 0, io.EOF
		case unix.EINVAL, unix.EOPNOTSUPP: // a file system that does not know holes
			return at, nil
		}
		return 0, err
	})
}

// forget has the system read again what it has in memory of a file.
func forget(f *os.File) {
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // advice: it may not be followed
}

// attributesOf are the calls for the extended attributes of a file.
type attributesOf struct {
	list func([]byte) (int, error)
	get  func(name string, value []byte) (int, error)
}

func fileAttributes(fd int) attributesOf {
	return attributesOf{
		func(b []byte) (int, error) { return unix.Flistxattr(fd, b) },
		func(name string, b []byte) (int, error) { return unix.Fgetxattr(fd, name, b) },
	}
}

// nameAttributes are those of what cannot be opened.
func (t *treeDigest) nameAttributes(name string) attributesOf {
	path := fmt.Sprintf("/proc/self/fd/%d/%s", t.dir, name)
	return attributesOf{
		func(b []byte) (int, error) { return unix.Llistxattr(path, b) },
		func(name string, b []byte) (int, error) { return unix.Lgetxattr(path, name, b) },
	}
}

// isPlace tells of an extended attribute that it says something of where or how a file is kept, and
// not what it is: what overlayfs notes for itself of the lower file and of its index (but not
// opaque, redirect, metacopy, whiteout and their like), labels and signatures that the policy of a machine
// gives, and properties of btrfs.
func isPlace(name string) bool {
	switch name {
	case "security.selinux", "security.ima", "security.evm":
		return true
	}
	for _, overlay := range []string{"trusted.overlay.", "user.overlay."} {
		if note, ok := strings.CutPrefix(name, overlay); ok {
			return slices.Contains([]string{"origin", "impure", "nlink", "upper", "uuid"}, note)
		}
	}
	return strings.HasPrefix(name, "btrfs.")
}

// attributes hashes extended attributes in the order of their names.
func (t *treeDigest) attributes(a attributesOf) error {
	list, err := readXattr(a.list)
	if err != nil && err != unix.ENOTSUP {
		return &os.SyscallError{Syscall: "listxattr", Err: err}
	}
	var names []string
	for name := range strings.SplitSeq(string(list), "\x00") {
		if name != "" && !isPlace(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	t.number(uint64(len(names)))
	for _, name := range names {
		value, err := readXattr(func(b []byte) (int, error) { return a.get(name, b) })
		if err == unix.ENODATA {
			err = ErrChanged
		}
		if err != nil {
			return fmt.Errorf("extended attribute %s: %w", name, err)
		}
		t.text(name)
		t.text(string(value))
	}
	return nil
}

// openFile opens a file to read, not a symbolic link, and does not wait for a pipe.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// unreadable tells of an error that the disk gives: EIO, also where a checksum is wrong (btrfs), or what file systems
// give that find themselves damaged.
func unreadable(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.EBADMSG)
}
