//go:build unix && !linux && !darwin && !openbsd && !(freebsd && (amd64 || arm64 || riscv64))

package vfs

import "golang.org/x/sys/unix"

// This file flushes and extends files on Unix systems that have no calls of their own for that.

func (f *OSFile) datasync() error {
	return f.control(func(fd uintptr) error {
		return ignoringEINTR(func() error { return unix.Fsync(int(fd)) })
	})
}

// extend makes the file size bytes long; blocks come with the writes.
func (f *OSFile) extend(_, size int64) error { return f.file.Truncate(size) }
