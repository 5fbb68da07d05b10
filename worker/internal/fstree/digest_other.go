//go:build !linux

package fstree

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Digest gives a SHA-256 of the tree at path, a directory: of names, types, permissions, targets of symbolic
// links, and bytes of regular files. It is another one than the same tree has on Linux.
// Options.Fresh changes nothing. The tree must not change meanwhile: ErrChanged, where that is noticed.
func Digest(ctx context.Context, path string, o DigestOptions) (sum [sha256.Size]byte, err error) {
	d := newDigest(ctx, o)
	d.text("holdfast portable tree 1")
	err = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error { // in the order of names
		if err != nil {
			return err
		}
		name, err := filepath.Rel(path, p)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		d.text(filepath.ToSlash(name))
		d.number(uint64(info.Mode()))
		if err := d.read(EntryBytes); err != nil {
			return err
		}
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			d.text(target)
			return err
		case e.Type().IsRegular():
			return d.file(p)
		}
		return nil
	})
	if err != nil {
		return sum, fmt.Errorf("digest of %s: %w", path, err)
	}
	return d.sum(), nil
}

func (d *digest) file(path string) error {
	f, err := openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return d.blocks(f, info.Size(), func(at int64) (int64, error) { return at, nil })
}

func openFile(path string) (*os.File, error) { return os.Open(path) }

func forget(*os.File) {}

func unreadable(err error) bool { return errors.Is(err, syscall.EIO) }
