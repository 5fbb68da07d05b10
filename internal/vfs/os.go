package vfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// OSFile is a file of the operating system.
//
// Sync is fdatasync on Linux and FreeBSD, F_FULLFSYNC on Darwin,
// FlushFileBuffers on Windows and fsync elsewhere. Lock is flock, except on
// Windows (LockFileEx on the range that bbolt locks) and on Solaris, illumos
// and AIX (fcntl, whose locks do not exclude a second open in one process).
type OSFile struct {
	file *os.File
	// raw lends out the descriptor and keeps it open while it is lent.
	raw syscall.RawConn
	// sizeMu serialises Truncate and Grow: Grow looks at the size first and
	// puts it back when it fails.
	sizeMu    sync.Mutex
	extension extension
	// wrote is whether something of the file was changed through it.
	wrote atomic.Bool
	// noJournal is whether a flush must write the inode by itself. Linux alone asks, once.
	noJournal struct {
		asked sync.Once
		is    bool
	}
}

// extension is the memory of an extend, where it has some, so that it takes none: of a file
// that only grows nothing else would be allocated.
type extension struct {
	old, size int64
	err       error
	call      func(fd uintptr)
}

var _ File = (*OSFile)(nil)

// OpenOS opens the file at path with open, or with os.OpenFile when open is
// nil. It returns the error of open as it is, because callers of old test it
// with os.IsNotExist, which does not look into wrapped errors.
func OpenOS(path string, flag int, perm os.FileMode, open func(string, int, os.FileMode) (*os.File, error)) (File, error) {
	if open == nil {
		open = os.OpenFile
	}
	file, err := open(path, flag, perm)
	if err != nil {
		return nil, err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(fileError("open", path, err), file.Close())
	}
	return &OSFile{file: file, raw: raw}, nil
}

// Name is the path that the file was opened with.
func (f *OSFile) Name() string { return f.file.Name() }

// ReadAt reads len(p) bytes at off, fewer only with an error.
func (f *OSFile) ReadAt(p []byte, off int64) (int, error) { return f.file.ReadAt(p, off) }

// WriteAt writes p at off.
func (f *OSFile) WriteAt(p []byte, off int64) (int, error) {
	f.wrote.Store(true)
	return f.file.WriteAt(p, off)
}

// WriteVec writes the buffers one after the other from off on: with pwritev
// on Linux and Darwin, elsewhere by copying small buffers together.
func (f *OSFile) WriteVec(bufs [][]byte, off int64) error {
	if off < 0 {
		return fileError("write", f.Name(), errNegativeOffset)
	}
	f.wrote.Store(true)
	if len(bufs) == 1 {
		_, err := f.file.WriteAt(bufs[0], off)
		return err
	}
	return fileError("write", f.Name(), f.writeVec(bufs, off))
}

// Size is the file's length in bytes.
func (f *OSFile) Size() (int64, error) {
	// Not Stat: where a file's times have a fine grain (Linux 6.13 and later)
	// asking for them obliges the next write to give the file a new time, and
	// a durable commit then took a quarter more. The position is not used:
	// each read and write names its own.
	size, err := f.file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, fileError("seek", f.Name(), err)
	}
	return size, nil
}

// Truncate sets the file's length.
func (f *OSFile) Truncate(size int64) error {
	if size < 0 { // the error of Windows is not EINVAL
		return fileError("truncate", f.Name(), syscall.EINVAL)
	}
	f.wrote.Store(true)
	f.sizeMu.Lock()
	defer f.sizeMu.Unlock()
	return f.file.Truncate(size)
}

// Grow makes the file at least size bytes long. Blocks are reserved on Linux
// and FreeBSD by fallocate and on Darwin by F_PREALLOCATE, where the file
// system has them, and on Windows by the extension itself.
func (f *OSFile) Grow(size int64) error {
	f.wrote.Store(true)
	f.sizeMu.Lock()
	defer f.sizeMu.Unlock()
	old, err := f.Size()
	if err != nil {
		return err
	}
	if size <= old {
		return nil
	}
	if err := f.extend(old, size); err != nil {
		return fileError("grow", f.Name(), errors.Join(cause(err), f.restoreSize(old)))
	}
	return nil
}

// restoreSize takes back the part of an extension that is there, and blocks
// that are reserved past the end. A truncation that fails does no harm when
// the size is right.
func (f *OSFile) restoreSize(old int64) error {
	failed := f.file.Truncate(old)
	if failed == nil {
		return nil
	}
	if size, err := f.Size(); err == nil && size == old {
		return nil
	}
	return failed
}

// Sync flushes data and size to the device.
func (f *OSFile) Sync() error { return fileError("flush", f.Name(), f.datasync()) }

// Identity is made of the file's number in its file system and, where the system knows it, of
// the time at which it was made, as numbers are used again.
func (f *OSFile) Identity() uint64 {
	h := fnv.New64a()
	err := f.control(func(fd uintptr) error {
		parts, err := identify(fd)
		for _, n := range parts {
			_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, n))
		}
		return err
	})
	if err != nil {
		return 0
	}
	return max(1, h.Sum64())
}

// DropCache drops cached bytes, on Linux.
func (f *OSFile) DropCache(off, n int64) error {
	return fileError("drop the cache of", f.Name(), f.dropCache(off, n))
}

// Prefetch begins to read a part of the file, on Linux.
func (f *OSFile) Prefetch(off, n int64) {
	if off >= 0 && n > 0 {
		f.prefetchFile(off, n)
	}
}

// Map maps the first length bytes and advises random access.
func (f *OSFile) Map(length int64, opts MapOptions) (Mapping, error) {
	data, err := f.mapData(length, opts)
	if err != nil {
		return nil, mapError(f.Name(), length, cause(err))
	}
	return &osMapping{file: f, name: f.Name(), data: data}, nil
}

func (f *OSFile) mapData(length int64, opts MapOptions) (data []byte, err error) {
	if length <= 0 || int64(int(length)) != length {
		return nil, fmt.Errorf("length out of range: %w", syscall.EINVAL)
	}
	if !mapBeyondEnd {
		size, err := f.file.Seek(0, io.SeekEnd) // not Size, whose error names the file, as Map's does
		if err != nil {
			return nil, err
		}
		if length > size {
			return nil, fmt.Errorf("file ends at %d: %w", size, syscall.EINVAL)
		}
	}
	err = f.control(func(fd uintptr) error {
		data, err = mapFile(fd, int(length), opts)
		return err
	})
	return data, err
}

// MapBeyondEnd is true everywhere but on Windows.
func (f *OSFile) MapBeyondEnd() bool { return mapBeyondEnd }

// Lock takes the lock of the file.
func (f *OSFile) Lock(exclusive bool, timeout time.Duration) error {
	err := retryLock(timeout, func() (ok bool, err error) {
		err = f.control(func(fd uintptr) error {
			ok, err = tryLock(fd, exclusive)
			return err
		})
		return ok, err
	})
	if err == ErrTimeout {
		return err
	}
	return fileError("lock", f.Name(), err)
}

// Unlock gives the lock back.
func (f *OSFile) Unlock() error { return fileError("unlock", f.Name(), f.control(unlock)) }

// Close closes the file.
func (f *OSFile) Close() error { return f.file.Close() }

// control calls fn with the file's descriptor, which stays open meanwhile.
func (f *OSFile) control(fn func(fd uintptr) error) error {
	c := controls.Get().(*control)
	c.fn = fn
	err := f.lend(c.with)
	if err == nil {
		err = c.err
	}
	c.fn, c.err = nil, nil
	controls.Put(c)
	return err
}

// control is the memory of a call of OSFile.control, so that it takes none.
type control struct {
	fn   func(fd uintptr) error
	err  error
	with func(fd uintptr)
}

var controls = sync.Pool{New: func() any {
	c := new(control)
	c.with = func(fd uintptr) { c.err = c.fn(fd) }
	return c
}}

// lend is control for what has no error, or keeps it.
func (f *OSFile) lend(fn func(fd uintptr)) error {
	if closed := f.raw.Control(fn); closed != nil {
		return os.ErrClosed
	}
	return nil
}

// osMapping is a mapping of an OSFile. data comes from mapFile and no other
// slice of the memory is made, so once Close has cleared it nothing here
// touches memory that is no longer mapped.
type osMapping struct {
	file *OSFile
	name string
	data []byte

	mu     sync.Mutex
	pinned int64 // bytes from the start that are pinned
}

func (m *osMapping) Data() []byte { return m.data }

func (m *osMapping) Lock(n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := checkPin(m.name, n, m.data); err != nil || n <= m.pinned {
		return err
	}
	// The system pins whole pages and some want a page's start.
	start := m.pinned &^ int64(os.Getpagesize()-1)
	if err := pin(m.data[start:n]); err != nil {
		return fileError("mlock", m.name, err)
	}
	m.pinned = n
	return nil
}

func (m *osMapping) Prefetch(off, n int64) {
	length := int64(len(m.data))
	if off < 0 || n <= 0 || off >= length {
		return
	}
	start := off &^ int64(os.Getpagesize()-1) // some systems want a page's start
	m.file.prefetch(m.data, start, min(n, length-off)+off-start)
}

func (m *osMapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.data == nil {
		return nil
	}
	if err := unmap(m.data); err != nil {
		return fileError("unmap", m.name, err)
	}
	m.data, m.pinned = nil, 0
	return nil
}
