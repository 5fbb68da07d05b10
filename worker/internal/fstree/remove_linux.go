package fstree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// removeBatch is how many entries of a directory are read at a time.
	removeBatch = 512

	// maxNesting is how deep Remove goes; what lies deeper is first moved up, so that a tree of
	// any depth takes a bounded number of open files.
	maxNesting = 64
)

// Remove removes the tree at path, which need not be there. When ctx ends it stops soon, with
// the error of ctx; what is removed stays removed. What is mounted in the tree it leaves
// alone, and returns ErrMounted.
func Remove(ctx context.Context, path string) error {
	r := remover{ctx: ctx}
	parent, err := unix.Open(filepath.Dir(path), unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_RDONLY, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer func() { _ = unix.Close(parent) }()
	err = unix.Unlinkat(parent, filepath.Base(path), 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	r.above = parent
	if err := r.directory(parent, filepath.Base(path), 0); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

type remover struct {
	ctx   context.Context
	above int // the directory that the tree is in, and that stays as it is
	top   int // the directory that is to go
	moved int // names given to what was moved up
}

// openHere opens a directory in another one. If something is mounted on it the error is EXDEV.
func openHere(dir int, name string, flags int) (int, error) {
	flags |= unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	return unix.Openat2(dir, name, &unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_NO_XDEV})
}

// inside tells whether an open directory is part of the tree.
func (r *remover) inside(dir int) bool { return dir != r.above }

// directory removes the directory name in dir.
func (r *remover) directory(dir int, name string, depth int) error {
	fd, err := openHere(dir, name, unix.O_RDONLY)
	if err == unix.EACCES {
		if r.inside(dir) {
			_ = unix.Fchmod(dir, 0o700) // it may be that this one cannot be searched
		}
		permit(dir, name)
		fd, err = openHere(dir, name, unix.O_RDONLY)
	}
	switch err {
	case nil:
	case unix.ENOENT:
		return nil
	case unix.EXDEV:
		return fmt.Errorf("%s: %w", name, ErrMounted)
	default:
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if depth == 0 {
		r.top = fd
	}
	if err := r.content(f, depth); err != nil {
		return err
	}
	return r.unlink(dir, name, unix.AT_REMOVEDIR)
}

// content removes what is in a directory.
func (r *remover) content(f *os.File, depth int) error {
	for {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		entries, err := f.ReadDir(removeBatch)
		if len(entries) == 0 {
			if err != nil && err != io.EOF {
				return err
			}
			return nil
		}
		for _, e := range entries {
			if err := r.entry(int(f.Fd()), e, depth); err != nil {
				return err
			}
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil { // positions may have moved
			return err
		}
	}
}

func (r *remover) entry(dir int, e os.DirEntry, depth int) error {
	if !e.IsDir() {
		err := r.unlink(dir, e.Name(), 0)
		if !errors.Is(err, unix.EISDIR) {
			return err
		}
	}
	if depth < maxNesting {
		return r.directory(dir, e.Name(), depth+1)
	}
	for {
		r.moved++
		err := unix.Renameat2(dir, e.Name(), r.top, fmt.Sprintf("deep-%d", r.moved), unix.RENAME_NOREPLACE)
		if err != unix.EEXIST {
			return err
		}
	}
}

// permit lets the owner into a directory, who need not be root: overlayfs itself makes some that no user may enter.
func permit(dir int, name string) {
	fd, err := openHere(dir, name, unix.O_PATH)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	_ = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o700)
}

// unlink removes an entry; if it, or the directory, is protected, without that.
func (r *remover) unlink(dir int, name string, flags int) error {
	err := unix.Unlinkat(dir, name, flags)
	if err == unix.EACCES && r.inside(dir) {
		_ = unix.Fchmod(dir, 0o700)
		err = unix.Unlinkat(dir, name, flags)
	}
	if err == unix.EPERM || err == unix.EACCES {
		unprotect(dir, ".")
		unprotect(dir, name)
		err = unix.Unlinkat(dir, name, flags)
	}
	switch err {
	case nil, unix.ENOENT:
		return nil
	case unix.EBUSY:
		return fmt.Errorf("%s: %w", name, ErrMounted)
	}
	return &os.PathError{Op: "unlink", Path: name, Err: err}
}

// protection are the attributes that chattr calls i and a: FS_IMMUTABLE_FL and FS_APPEND_FL.
const protection = 0x10 | 0x20

// unprotect takes these attributes away where it can.
func unprotect(dir int, name string) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS); err == nil && flags&protection != 0 {
		_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags&^protection)
	}
}
