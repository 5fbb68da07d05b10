package vfs

import (
	"cmp"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Bounds of one fallocate. A signal makes tmpfs undo the whole call, so the
// pieces shrink until one fits between two signals.
const (
	reserveMax = 1 << 30
	reserveMin = 1 << 20
)

// datasync is fdatasync, and on ext4 without a journal more than that: see noJournal.
func (f *OSFile) datasync() error {
	f.noJournal.asked.Do(func() {
		f.noJournal.is = f.control(func(fd uintptr) error {
			if !noJournal(fd) {
				return errors.ErrUnsupported
			}
			return nil
		}) == nil
	})
	switch {
	case f.noJournal.is && f.wrote.Load():
		return f.control(flushInode)
	case f.noJournal.is:
		return f.control(flushUnwritten)
	}
	return f.control(func(fd uintptr) error {
		return ignoringEINTR(func() error { return unix.Fdatasync(int(fd)) })
	})
}

// identify reads the number of a file's inode and the time at which that was made.
func identify(fd uintptr) ([]uint64, error) {
	var s unix.Statx_t
	err := unix.Statx(int(fd), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &s)
	if err != nil || s.Mask&unix.STATX_INO == 0 {
		return nil, cmp.Or(err, error(unix.ENOTSUP))
	}
	parts := []uint64{s.Ino}
	if s.Mask&unix.STATX_BTIME != 0 {
		parts = append(parts, uint64(s.Btime.Sec), uint64(s.Btime.Nsec))
	}
	return parts, nil
}

// largeFolio is the largest unit in which Linux caches a file, on machines whose
// pages are 4 KiB, in bytes. It lies at a multiple of its size in the file.
const largeFolio = 2 << 20

// dropCache drops more than it is asked for where it has to: Linux drops units
// of its cache that lie in the range as a whole, and says nothing of others.
// Those are pages, and on some file systems much larger folios (ext4 since 6.16,
// XFS since 5.18) wherever the file was read or written in larger pieces.
func (f *OSFile) dropCache(off, n int64) error {
	return f.control(func(fd uintptr) error {
		for _, unit := range []int64{int64(os.Getpagesize()), largeFolio} {
			start := off / unit * unit
			end := (off + n + unit - 1) / unit * unit
			if err := unix.Fadvise(int(fd), start, end-start, unix.FADV_DONTNEED); err != nil {
				return err
			}
			if held, known := cached(fd, off, n); known && held == 0 {
				return nil
			}
		}
		if _, known := cached(fd, off, n); !known {
			return nil
		}
		return unix.Fadvise(int(fd), 0, 0, unix.FADV_DONTNEED) // the whole file
	})
}

// cached is the number of pages of a range that are cached. Kernels before 6.5,
// and some containers, do not tell.
func cached(fd uintptr, off, n int64) (pages uint64, known bool) {
	var stat unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(off), Len: uint64(n)}, &stat, 0)
	return stat.Cache, err == nil
}

// prefetchPiece is how much one call begins to read, in bytes. The kernel cuts a longer
// one short, without a word, to what it would read ahead by itself.
const prefetchPiece = 128 << 10

// prefetch begins to read n bytes of the file, unless the last of them is cached. (To
// ask for what is cached takes a look at each page, which is dear where all is, and that
// is the usual case.) MADV_POPULATE_READ would map them too, but page by page: it reads a
// page that is not cached by itself, and maps others more slowly than faults do, which
// map what is cached around.
func (f *OSFile) prefetch(_ []byte, off, n int64) { f.prefetchFile(off, n) }

func (f *OSFile) prefetchFile(off, n int64) {
	_ = f.lend(func(fd uintptr) {
		var b [1]byte
		read, err := unix.Preadv2(int(fd), [][]byte{b[:]}, off+n-1, unix.RWF_NOWAIT)
		if read == 1 || err == nil { // there, or past the end
			return
		}
		for ; n > 0; off, n = off+prefetchPiece, n-prefetchPiece {
			if unix.Fadvise(int(fd), off, min(n, prefetchPiece), unix.FADV_WILLNEED) != nil {
				return
			}
		}
	})
}

// extend makes the file size bytes long and reserves the blocks from old on. The caller
// holds sizeMu.
func (f *OSFile) extend(old, size int64) error {
	e := &f.extension
	e.old, e.size = old, size
	if e.call == nil {
		e.call = e.reserve
	}
	err := f.lend(e.call)
	if err == nil {
		err = e.err
	}
	switch err {
	case unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL:
		// The file system cannot reserve.
		return f.file.Truncate(size)
	}
	return err
}

func (e *extension) reserve(fd uintptr) {
	var fs unix.Statfs_t
	if grow := e.size - e.old; grow > reserveMax && unix.Fstatfs(int(fd), &fs) == nil &&
		uint64(grow) > fs.Bfree*uint64(fs.Bsize) {
		e.err = unix.ENOSPC // without filling the disk first to find out
		return
	}
	e.err = reserve(e.old, e.size, func(off, length int64) error {
		return unix.Fallocate(int(fd), 0, off, length)
	})
}

func reserve(off, end int64, fallocate func(off, length int64) error) error {
	piece := int64(reserveMax)
	for off < end {
		length := min(piece, end-off)
		switch err := fallocate(off, length); err {
		case nil:
			off += length
		case unix.EINTR:
			piece = max(piece/2, reserveMin)
		default:
			return err
		}
	}
	return nil
}
