package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// whiteout begins the name of an entry that removes another.
const whiteout = ".wh."

// Write writes what the tree upper has and the tree lower has not as a layer of an image: a tar archive that is not
// compressed. With lower "" it has the whole tree. The same trees give the same bytes: entries are in the order of
// Compare, in the format PAX, without names of owners, and with the time of modification only.
//
// What is removed becomes a whiteout. Directories that lead to an entry are written too. If one name of a regular
// file is written, all its names are, as hard links. Sockets are left out, and so are devices 0/0, which are whiteouts to
// overlayfs. It is ErrName if a name cannot be in a layer. Memory is taken in proportion to the number of changes.
func Write(ctx context.Context, w io.Writer, lower, upper string) error {
	return write(ctx, w, lower, upper, nil)
}

// WriteAll is as Write, but leaves nothing out: fits is called for each file before it is written, and its error ends
// it and is returned. What an archive has no entry for is one, too.
func WriteAll(ctx context.Context, w io.Writer, lower, upper string, fits func(path string, f *File) error) error {
	return write(ctx, w, lower, upper, fits)
}

func write(ctx context.Context, w io.Writer, lower, upper string, fits func(path string, f *File) error) error {
	a := &archive{comparison: comparison{ctx: ctx}, w: tar.NewWriter(w), fits: fits, changed: map[inode]bool{}, links: map[inode]string{}, dirs: map[string]bool{}}
	if fits == nil {
		a.fits = func(string, *File) error { return nil }
		a.comparison.left = func(f *File) bool {
			return f.is(unix.S_IFSOCK) || f.is(unix.S_IFCHR) && f.Major == 0 && f.Minor == 0
		}
	}
	a.comparison.change = a.note
	a.comparison.same = func(path string, f *File) { a.list = append(a.list, noted{path: path, inode: f.inode}) }
	if err := a.run(lower, upper); err != nil {
		return err
	}
	var err error
	if a.upper, err = openTree(upper); err != nil {
		return err
	}
	defer a.upper.close()
	for _, n := range a.list {
		if n.kind == 0 && !a.changed[n.inode] {
			continue
		}
		if err := a.entry(n); err != nil {
			return err
		}
	}
	return a.w.Close()
}

// archive is a layer in the making.
type archive struct {
	comparison
	w       *tar.Writer
	fits    func(path string, f *File) error
	list    []noted
	changed map[inode]bool   // files with several names that are written
	links   map[inode]string // and their first names
	dirs    map[string]bool  // that are written
	buffer  []byte
}

// noted is a change, or with kind 0 one of the names of a file that does not differ.
type noted struct {
	path  string
	kind  Kind
	inode inode
}

// note notes a change.
func (a *archive) note(c Change) error {
	if strings.HasPrefix(path.Base(c.Path), whiteout) {
		return fmt.Errorf("%q: %w: it begins with %s, as the names of whiteouts do; rename it", c.Path, ErrName, whiteout)
	}
	n := noted{path: c.Path, kind: c.Kind}
	if c.Upper != nil {
		n.inode = c.Upper.inode
		if c.Upper.linked {
			a.changed[n.inode] = true
		}
	}
	a.list = append(a.list, n)
	return nil
}

// entry writes an entry, after the directories that lead to it.
func (a *archive) entry(n noted) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	if n.path != "." {
		if err := a.directory(path.Dir(n.path)); err != nil {
			return err
		}
	}
	if n.kind == Removed {
		name := path.Join(path.Dir(n.path), whiteout+path.Base(n.path))
		return a.w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Format: tar.FormatPAX, ModTime: time.Unix(0, 0)})
	}
	f, err := a.upper.file(n.path)
	if err != nil {
		return err
	}
	if f.is(unix.S_IFDIR) {
		return a.directory(n.path)
	}
	return a.file(n.path, f)
}

// directory writes a directory, and those that lead to it, unless they are written.
func (a *archive) directory(name string) error {
	if a.dirs[name] {
		return nil
	}
	a.dirs[name] = true
	if name != "." {
		if err := a.directory(path.Dir(name)); err != nil {
			return err
		}
	}
	f, err := a.upper.file(name)
	if err != nil {
		return err
	}
	if err := a.fits(name, f); err != nil {
		return err
	}
	return a.w.WriteHeader(header(name+"/", tar.TypeDir, f))
}

func header(name string, kind byte, f *File) *tar.Header {
	h := &tar.Header{
		Typeflag: kind, Name: name, Mode: int64(f.Mode & 0o7777), Uid: int(f.UID), Gid: int(f.GID), ModTime: f.MTime, Format: tar.FormatPAX,
	}
	for attribute, value := range f.Xattrs {
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords["SCHILY.xattr."+attribute] = value
	}
	return h
}

// file writes what is not a directory.
func (a *archive) file(name string, f *File) error {
	if f.linked {
		if first, ok := a.links[f.inode]; ok {
			h := header(name, tar.TypeLink, f)
			h.Linkname, h.PAXRecords = first, nil
			return a.w.WriteHeader(h)
		}
		a.links[f.inode] = name
	}
	if err := a.fits(name, f); err != nil {
		return err
	}
	kinds := map[uint32]byte{unix.S_IFREG: tar.TypeReg, unix.S_IFLNK: tar.TypeSymlink, unix.S_IFIFO: tar.TypeFifo, unix.S_IFCHR: tar.TypeChar, unix.S_IFBLK: tar.TypeBlock}
	kind, ok := kinds[f.Mode&unix.S_IFMT]
	if !ok {
		return a.upper.failed("archive", name, errors.New("of an unknown type"))
	}
	h := header(name, kind, f)
	h.Linkname, h.Devmajor, h.Devminor, h.Size = f.Target, int64(f.Major), int64(f.Minor), f.Size
	if err := a.w.WriteHeader(h); err != nil {
		return fmt.Errorf("entry %q: %w", name, err)
	}
	if kind != tar.TypeReg || f.Size == 0 {
		return nil
	}
	return a.content(name, f.Size)
}

// content writes the bytes of a regular file.
func (a *archive) content(name string, size int64) error {
	in, err := a.upper.open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	if a.buffer == nil {
		a.buffer = make([]byte, chunk)
	}
	for size > 0 {
		if err := a.ctx.Err(); err != nil {
			return err
		}
		n, err := full(in, a.buffer[:min(chunk, size)])
		if err == nil && n == 0 {
			err = errors.New("it is shorter than it was")
		}
		if err != nil {
			return a.upper.failed("read", name, err)
		}
		if _, err := a.w.Write(a.buffer[:n]); err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}
