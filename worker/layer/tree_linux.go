package layer

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tree is one of the two that are compared. It does not change, so paths below its root lead through no symbolic link.
type tree struct {
	root string
	dir  *os.File // nil: a tree without anything, not even a root
}

func openTree(root string) (*tree, error) {
	if root == "" {
		return &tree{}, nil
	}
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	return &tree{root, os.NewFile(uintptr(fd), root)}, nil
}

func (t *tree) close() {
	if t.dir != nil {
		_ = t.dir.Close() // it was only read
	}
}

func (t *tree) fd() int { return int(t.dir.Fd()) }

// failed is an error of a call on a file of the tree.
func (t *tree) failed(op, path string, err error) error {
	return &os.PathError{Op: op, Path: filepath.Join(t.root, path), Err: err}
}

// names are those in a directory, in order.
func (t *tree) names(path string) ([]string, error) {
	fd, err := unix.Openat(t.fd(), path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, t.failed("open", path, err)
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, t.failed("read", path, err)
	}
	slices.Sort(names)
	return names, nil
}

// file looks at what has a path in the tree.
func (t *tree) file(path string) (*File, error) {
	if len(path) > MaxPath {
		return nil, fmt.Errorf("%.100q...: %w: it has %d bytes, %d are possible", path, ErrName, len(path), MaxPath)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(t.fd(), path, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, t.failed("lstat", path, err)
	}
	f := &File{Mode: st.Mode, UID: st.Uid, GID: st.Gid, MTime: timeOf(st.Mtim), ctime: timeOf(st.Ctim), inode: inode{st.Dev, st.Ino}}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		f.Size = st.Size
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(t.fd(), path, target)
		if err != nil {
			return nil, t.failed("readlink", path, err)
		}
		f.Target = string(target[:n])
	case unix.S_IFCHR, unix.S_IFBLK:
		f.Major, f.Minor = unix.Major(st.Rdev), unix.Minor(st.Rdev)
	}
	f.linked = st.Nlink > 1 && f.is(unix.S_IFREG)
	var err error
	f.Xattrs, err = t.xattrs(path)
	return f, err
}

func timeOf(t unix.Timespec) time.Time { return time.Unix(t.Unix()).UTC() }

// is tells whether a file is of a type, one of S_IFMT.
func (f *File) is(kind uint32) bool { return f.Mode&unix.S_IFMT == kind }

// xattrs are the extended attributes of a file, but for those that say where it is kept.
func (t *tree) xattrs(path string) (map[string]string, error) {
	path = fmt.Sprintf("/proc/self/fd/%d/%s", t.fd(), path)
	list, err := readXattr(func(b []byte) (int, error) { return unix.Llistxattr(path, b) })
	if err == unix.ENOTSUP || err == nil && len(list) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "listxattr", Path: path, Err: err}
	}
	var found map[string]string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if ofPlace(name) {
			continue
		}
		value, err := readXattr(func(b []byte) (int, error) { return unix.Lgetxattr(path, name, b) })
		if err != nil {
			return nil, &os.PathError{Op: "getxattr " + name, Path: path, Err: err}
		}
		if found == nil {
			found = map[string]string{}
		}
		found[name] = string(value)
	}
	return found, nil
}

// ofPlace tells of an extended attribute that it directs the file system, or comes from the machine's policy.
func ofPlace(name string) bool {
	switch name {
	case "security.selinux", "security.ima", "security.evm":
		return true
	}
	for _, prefix := range []string{"trusted.overlay.", "user.overlay.", "btrfs."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
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

// open opens a regular file.
func (t *tree) open(path string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(t.fd(), path, flags|unix.O_NOATIME, 0)
	if err == unix.EPERM { // a file of another user
		fd, err = unix.Openat(t.fd(), path, flags, 0)
	}
	if err != nil {
		return nil, t.failed("open", path, err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(t.root, path)), nil
}

// full reads until the buffer is full, or the file ends.
func full(f *os.File, b []byte) (int, error) {
	n, err := io.ReadFull(f, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return n, err
}
