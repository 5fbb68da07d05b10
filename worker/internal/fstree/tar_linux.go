package fstree

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Tar writes the directory or file that is open, with O_PATH, to an archive as a name, with what is in it. Owners,
// modes, times, extended attributes and files with several names are kept. No symbolic link is followed. Sockets are
// left out, as archives have none.
func Tar(ctx context.Context, from *os.File, name string, w *tar.Writer) error {
	t := &tarring{ctx: ctx, w: w, links: map[inode]string{}}
	return t.one(from, name, 0)
}

type tarring struct {
	ctx   context.Context
	w     *tar.Writer
	links map[inode]string // the first names of files with several
}

// tarTypes are the types of entries.
var tarTypes = map[uint32]byte{
	unix.S_IFDIR: tar.TypeDir, unix.S_IFREG: tar.TypeReg, unix.S_IFLNK: tar.TypeSymlink, unix.S_IFIFO: tar.TypeFifo, unix.S_IFCHR: tar.TypeChar, unix.S_IFBLK: tar.TypeBlock,
}

func (t *tarring) one(from *os.File, name string, depth int) error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(from.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: name, Err: err}
	}
	format := st.Mode & unix.S_IFMT
	kind, ok := tarTypes[format]
	if !ok {
		return nil
	}
	h := &tar.Header{Typeflag: kind, Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX}
	is := inode{st.Dev, st.Ino}
	switch first, again := t.links[is]; {
	case again:
		h.Typeflag, h.Linkname = tar.TypeLink, first
		return t.header(h)
	case st.Nlink > 1 && format != unix.S_IFDIR:
		t.links[is] = name
	}
	switch format {
	case unix.S_IFDIR:
		h.Name += "/"
	case unix.S_IFREG:
		h.Size = st.Size
	case unix.S_IFLNK:
		b := make([]byte, unix.PathMax+1)
		n, err := unix.Readlinkat(int(from.Fd()), "", b)
		if err != nil {
			return &os.PathError{Op: "readlink", Path: name, Err: err}
		}
		h.Linkname = string(b[:n])
		return t.header(h)
	case unix.S_IFCHR, unix.S_IFBLK:
		h.Devmajor, h.Devminor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	}
	if err := t.attributes(from, h); err != nil {
		return err
	}
	if err := t.header(h); err != nil {
		return err
	}
	switch format {
	case unix.S_IFDIR:
		return t.inside(from, name, depth)
	case unix.S_IFREG:
		return t.content(from, name, st.Size)
	}
	return nil
}

func (t *tarring) header(h *tar.Header) error {
	if err := t.w.WriteHeader(h); err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	return nil
}

// attributes adds extended attributes to a header.
func (t *tarring) attributes(from *os.File, h *tar.Header) error {
	file := fdPath(from)
	list := make([]byte, 1<<16) // the most that the kernel has
	n, err := unix.Listxattr(file, list)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "listxattr", Path: h.Name, Err: err}
	}
	value := make([]byte, 1<<16)
	for key := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if key == "" || isPlace(key) || strings.HasPrefix(key, "trusted.overlay.") || strings.HasPrefix(key, "user.overlay.") {
			continue
		}
		n, err := unix.Getxattr(file, key, value)
		if err != nil {
			return &os.PathError{Op: "getxattr " + key, Path: h.Name, Err: err}
		}
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords["SCHILY.xattr."+key] = string(value[:n])
	}
	return nil
}

func (t *tarring) content(from *os.File, name string, size int64) error {
	in, err := os.OpenFile(fdPath(from), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	n, err := io.Copy(t.w, &stopped{t.ctx, io.LimitReader(in, size)})
	if err == nil && n < size {
		err = ErrChanged
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// stopped reads until a context ends.
type stopped struct {
	ctx context.Context
	io.Reader
}

func (r *stopped) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

func (t *tarring) inside(from *os.File, name string, depth int) error {
	if depth == maxPlaced {
		return fmt.Errorf("%s: directories nested more than %d deep", name, maxPlaced)
	}
	in, err := os.OpenFile(fdPath(from), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	names, err := in.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, one := range names {
		fd, err := unix.Openat(int(in.Fd()), one, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: path.Join(name, one), Err: err}
		}
		f := os.NewFile(uintptr(fd), one)
		err = t.one(f, path.Join(name, one), depth+1)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
