//go:build !linux

package fstree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Flush returns when what is in a file or directory is on the disk, also what other processes wrote.
func Flush(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Remove removes the tree at path, which need not be there.
func Remove(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// Measure is what the tree at path takes, path itself included, by the sizes of its files.
func Measure(ctx context.Context, path string) (Usage, error) {
	var u Usage
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) && p != path {
			return nil
		}
		if err != nil {
			return err
		}
		u.Inodes++
		if d.Type().IsRegular() {
			u.Size += info.Size()
		}
		return ctx.Err()
	})
	return u, err
}

// Copy copies the tree at from, a directory, to the directory to, which is there and empty: files, directories
// and symbolic links with their modes and times. Other files are an error.
func Copy(ctx context.Context, from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := copyEntry(ctx, filepath.Join(from, e.Name()), filepath.Join(to, e.Name()), e); err != nil {
			return err
		}
	}
	return CopyAttributes(from, to)
}

func copyEntry(ctx context.Context, from, to string, e fs.DirEntry) error {
	switch {
	case e.IsDir():
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		return Copy(ctx, from, to)
	case e.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case e.Type().IsRegular():
		if err := copyFile(from, to); err != nil {
			return err
		}
		return CopyAttributes(from, to)
	}
	return fmt.Errorf("copy %s: %w: a %v on %s", from, errors.ErrUnsupported, e.Type(), runtime.GOOS)
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// CopyAttributes gives to what from has: mode and times.
func CopyAttributes(from, to string, _ ...string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.Chmod(to, info.Mode()); err != nil {
		return err
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}

// OpenSource opens a file.
func OpenSource(path string) (*os.File, error) { return os.Open(path) }

// StampOf is for Linux.
func StampOf(context.Context, *os.File) (Stamp, error) {
	return Stamp{}, fmt.Errorf("stamps of trees on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// DigestSource is for Linux.
func DigestSource(context.Context, *os.File, bool) (sum Sum, err error) {
	return sum, fmt.Errorf("digests of sources on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// PlaceOptions say what Place makes of attributes.
type PlaceOptions struct {
	Root   bool
	RootID uint32
}

// Place is for Linux.
func Place(context.Context, *os.File, *os.File, string, PlaceOptions) error {
	return fmt.Errorf("copies of sources on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// PlaceContent is for Linux.
func PlaceContent(context.Context, *os.File, *os.File, PlaceOptions) error {
	return fmt.Errorf("copies of sources on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
