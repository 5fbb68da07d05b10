package fstree

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxPlaced is how deep a tree may be for Place, which has two directories open for each level.
const maxPlaced = 256

// PlaceOptions say what Place makes of attributes.
type PlaceOptions struct {
	Root   bool   // what is copied belongs to root, with its whole mode and the extended attributes user.*; else to the process, without set-user-ID and its like
	RootID uint32 // the id of that root, where ids are mapped

	// Spare is a directory that nothing is copied into: ErrSpared; nil: none.
	Spare os.FileInfo
}

// ErrSpared: something would be copied into PlaceOptions.Spare.
var ErrSpared = errors.New("nothing is copied into that directory")

// Place copies the directory or file that OpenSource has opened to the name in the directory that dir is
// open as. A directory that is there stays, and gets what is copied besides what it has; a file takes the
// place, at once, of anything but a directory; without Root, of a regular file or symbolic link only. Times
// are kept. No symbolic link is followed at dir or in the source, so neither tree can lead the copy out of
// it. ErrSpecial of what is neither directory, regular file nor symbolic link. When it fails some may be
// copied.
func Place(ctx context.Context, from, dir *os.File, name string, o PlaceOptions) error {
	p := placer{ctx: ctx, o: o}
	return p.failed(from, p.one(from, dir, name, 0))
}

// PlaceContent copies what is in the directory from into the directory that dir is open as, as Place does.
func PlaceContent(ctx context.Context, from, dir *os.File, o PlaceOptions) error {
	p := placer{ctx: ctx, o: o}
	return p.failed(from, p.content(from, dir, 0))
}

// failed is an error of a copy, with where it was.
func (p *placer) failed(from *os.File, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("copy %s: %w", filepath.Join(slices.Concat([]string{from.Name()}, p.at)...), err)
}

// placer is a copy on its way.
type placer struct {
	ctx context.Context
	o   PlaceOptions
	at  []string // where it is, below its top
}

func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// one copies what is open, with O_PATH, to a name in a directory.
func (p *placer) one(from, dir *os.File, name string, depth int) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(from.Fd()), &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return p.directory(from, dir, name, &st, depth)
	case unix.S_IFREG:
		return p.replace(dir, name, func(to string) (bool, error) { return p.file(from, to, &st) })
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(from.Fd()), "", target)
		if err != nil {
			return &os.SyscallError{Syscall: "readlink", Err: err}
		}
		return p.replace(dir, name, func(to string) (bool, error) {
			if err := os.Symlink(string(target[:n]), to); err != nil {
				return false, err
			}
			return true, p.attributes(nil, to, &st)
		})
	}
	return ErrSpecial
}

// replace has something made under a name. If that is taken it is made under another, and takes the place
// of what is there. create tells whether it has made anything.
func (p *placer) replace(dir *os.File, name string, create func(to string) (made bool, err error)) (err error) {
	defer func() { nameFor(err, filepath.Join(dir.Name(), name)) }()
	made, err := create(fdPath(dir) + "/" + name)
	switch {
	case err == nil:
		return nil
	case made:
		return p.undo(dir, name, err)
	case !errors.Is(err, os.ErrExist):
		return err
	}
	if err := p.replaceable(dir, name); err != nil {
		return err
	}
	temporary := ".holdfast-" + rand.Text()
	if made, err = create(fdPath(dir) + "/" + temporary); err == nil {
		if err = unix.Renameat(int(dir.Fd()), temporary, int(dir.Fd()), name); err != nil {
			err = fmt.Errorf("there is something else than a file: rename: %w", err)
		}
	}
	if err != nil && made {
		err = p.undo(dir, temporary, err)
	}
	return err
}

// nameFor puts the path that people know in the place of that of a descriptor.
func nameFor(err error, path string) {
	var at *os.PathError
	if errors.As(err, &at) && strings.HasPrefix(at.Path, "/proc/self/fd/") {
		at.Path = path
	}
	var link *os.LinkError
	if errors.As(err, &link) && strings.HasPrefix(link.New, "/proc/self/fd/") {
		link.New = path
	}
}

// replaceable is an error if a name is that of something that is not replaced.
func (p *placer) replaceable(dir *os.File, name string) error {
	if p.o.Root {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil //nolint:nilerr // what is gone meanwhile is not replaced
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFLNK, unix.S_IFDIR: // of a directory the rename says so
		return nil
	}
	return fmt.Errorf("%s: is not a regular file", filepath.Join(dir.Name(), name))
}

// spared is an error if nothing may be copied into a directory.
func (p *placer) spared(dir *os.File) error {
	if p.o.Spare == nil {
		return nil
	}
	info, err := dir.Stat()
	if err == nil && os.SameFile(info, p.o.Spare) {
		err = ErrSpared
	}
	return err
}

// undo removes what could not be made whole.
func (p *placer) undo(dir *os.File, name string, err error) error {
	if gone := unix.Unlinkat(int(dir.Fd()), name, 0); gone != nil && gone != unix.ENOENT {
		err = errors.Join(err, gone)
	}
	return err
}

func (p *placer) file(from *os.File, to string, st *unix.Stat_t) (made bool, err error) {
	in, err := os.OpenFile(fdPath(from), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		nameFor(err, from.Name())
		return false, err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	err = CopyContent(p.ctx, in, out, st.Size)
	if err = errors.Join(err, out.Close()); err != nil {
		return true, err
	}
	return true, p.attributes(from, to, st)
}

func (p *placer) directory(from, dir *os.File, name string, st *unix.Stat_t, depth int) (err error) {
	if depth == maxPlaced {
		return fmt.Errorf("directories nested more than %d deep", maxPlaced)
	}
	made := unix.Mkdirat(int(dir.Fd()), name, 0o700)
	if made != nil && made != unix.EEXIST {
		return &os.SyscallError{Syscall: "mkdir", Err: made}
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("there is something else than a directory: open: %w", err)
	}
	to := os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name))
	defer to.Close()
	if err := p.content(from, to, depth); err != nil || made != nil {
		return err
	}
	return p.attributes(from, fdPath(to)+"/.", st) // last: entries change the times
}

// content copies the entries of a directory.
func (p *placer) content(from, to *os.File, depth int) error {
	if err := p.spared(to); err != nil {
		return err
	}
	in, err := os.OpenFile(fdPath(from), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	for {
		entries, err := in.Readdirnames(512)
		for _, e := range entries {
			if err := p.entry(in, to, e, depth); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (p *placer) entry(in, to *os.File, name string, depth int) error {
	p.at = append(p.at, name)
	fd, err := unix.Openat(int(in.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		err = ErrChanged
	}
	if err != nil {
		return err
	}
	from := os.NewFile(uintptr(fd), name)
	defer from.Close()
	if err := p.one(from, to, name, depth+1); err != nil {
		return err
	}
	p.at = p.at[:len(p.at)-1]
	return nil
}

// attributes gives to what was made those of from, nil for a symbolic link.
func (p *placer) attributes(from *os.File, to string, st *unix.Stat_t) error {
	mode := st.Mode & 0o777
	if p.o.Root {
		mode = st.Mode & 0o7777
		if err := os.Lchown(to, int(p.o.RootID), int(p.o.RootID)); err != nil {
			return err
		}
	}
	if from != nil {
		if p.o.Root {
			if err := p.userAttributes(from, to); err != nil {
				return err
			}
		}
		if err := unix.Chmod(to, mode); err != nil {
			return &os.PathError{Op: "chmod", Path: to, Err: err}
		}
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, st.Mtim}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, to, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "utimensat", Path: to, Err: err}
	}
	return nil
}

// userAttributes copies the extended attributes that any user can give, but for those that mean something to overlayfs.
func (p *placer) userAttributes(from *os.File, to string) error {
	path := fdPath(from)
	names, err := readXattr(func(b []byte) (int, error) { return unix.Listxattr(path, b) })
	if err == unix.ENOTSUP {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "listxattr", Path: path, Err: err}
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if !strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "user.overlay.") {
			continue
		}
		value, err := readXattr(func(b []byte) (int, error) { return unix.Getxattr(path, name, b) })
		if err == unix.ENODATA {
			continue
		}
		if err == nil {
			err = unix.Lsetxattr(to, name, value, 0)
		}
		if err != nil && err != unix.ENOTSUP {
			return &os.PathError{Op: "setxattr " + name, Path: to, Err: err}
		}
	}
	return nil
}
