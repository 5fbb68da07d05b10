package real

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/internal/vfs"
)

// failing is a file on a disk that fails for one flush.
type failing struct {
	vfs.File
	path      string
	disk      *disk
	rand      *rand.Rand
	after     int  // flushes that succeed before
	fromMetas bool // what lies behind the metas on the device is lost
	part      bool // only some of what is flushed is lost
	failed    bool
	killed    bool // behind the failure: what the cache shows stays there
	what      string
	clean     bool // what the flush that was to fail had to write is on the device: another program has called sync(2)

	// written is what was written since the last flush, by where it begins: the
	// metas, and pages. Its lengths are in bytes.
	written map[int64]int
	metas   int64 // where pages begin
}

func (f *failing) WriteAt(p []byte, off int64) (int, error) {
	f.note(off, len(p))
	return f.File.WriteAt(p, off)
}

func (f *failing) WriteVec(bufs [][]byte, off int64) error {
	at := off
	for _, b := range bufs {
		f.note(at, len(b))
		at += int64(len(b))
	}
	return f.File.WriteVec(bufs, off)
}

func (f *failing) note(off int64, n int) {
	if f.written == nil {
		f.written = map[int64]int{}
	}
	f.written[off] = max(f.written[off], n)
}

// Grow writes zeros and flushes them, so that a failing flush meets nothing but
// blocks that have been written before: else the file system has to change
// structures of its own then, which may lie behind the position as well.
func (f *failing) Grow(size int64) error {
	old, err := f.Size()
	if err != nil || size <= old {
		return err
	}
	if err := f.File.Grow(size); err != nil {
		return err
	}
	if _, err := f.File.WriteAt(make([]byte, size-old), old); err != nil {
		return err
	}
	return f.File.Sync()
}

// DropCache is left out where the process is to be one that was killed behind
// the failure; one that closes the file drops it from the cache.
func (f *failing) DropCache(off, n int64) error {
	if f.failed && f.killed {
		return nil
	}
	return f.File.DropCache(off, n)
}

// Sync lets the device fail behind a position while it flushes. What is lost
// may be nothing, if the flush wrote nothing there: then a later one will do.
func (f *failing) Sync() error {
	written := f.written
	f.written = nil
	f.after--
	if f.failed || f.after >= 0 {
		return f.File.Sync()
	}
	plain, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer plain.Close()
	where, err := extents(plain)
	if err != nil {
		return err
	}
	position := lowest(where)
	switch {
	case f.fromMetas:
		position = where[slices.IndexFunc(where, func(e extent) bool { return e.logical == 0 })].physical
	case f.part:
		e := where[f.rand.IntN(len(where))]
		position = e.physical + uint64(f.rand.Int64N(int64(e.length)))&^4095
	}
	clean := false
	err = f.disk.failDuring(position, func() error {
		clean = isClean(plain) // any program that writes what is left meets the failure from here on
		return f.File.Sync()
	})
	what, lost := f.lost(written)
	if lost != nil {
		return errors.Join(err, lost)
	}
	if f.failed = err != nil; f.failed {
		f.what = what
	}
	f.clean = err == nil && clean && len(written) > 0 && what == lostNothing
	return err
}

// isClean tells whether all of a file is written, or being written, where the kernel tells (Linux 6.5).
func isClean(file *os.File) bool {
	var all [2]uint64 // struct cachestat_range: from 0, to the end
	var stat struct{ cached, dirty, writeback, evicted, recentlyEvicted uint64 }
	_, _, errno := unix.Syscall6(unix.SYS_CACHESTAT, file.Fd(), uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&stat)), 0, 0, 0)
	return errno == 0 && stat.dirty == 0
}

// lost says what of what was written is not on the device.
func (f *failing) lost(written map[int64]int) (string, error) {
	cached, err := os.ReadFile(f.path)
	if err != nil {
		return "", err
	}
	device, err := readDevice(f.path)
	if err != nil {
		return "", err
	}
	var metas, pages, lostMetas, lostPages int
	for off, n := range written {
		lost := 0
		if !bytes.Equal(cached[off:][:n], device[off:][:n]) {
			lost = 1
		}
		if off < f.metas {
			metas, lostMetas = metas+1, lostMetas+lost
		} else {
			pages, lostPages = pages+1, lostPages+lost
		}
	}
	switch {
	case lostMetas+lostPages == 0:
		return lostNothing, nil
	case metas == 0:
		return how(lostPages, pages) + " pages of a commit", nil
	case pages == 0:
		return "a meta", nil
	case lostMetas == 0:
		return "not the meta, pages", nil
	}
	return "the meta, " + how(lostPages, pages) + " pages", nil
}

func how(n, of int) string {
	switch n {
	case 0:
		return "no"
	case of:
		return "all"
	}
	return "some"
}

// lostNothing is what a flush has lost whose bytes were there before.
const lostNothing = "nothing"
