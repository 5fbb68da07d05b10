// Package vfs is a file as the engine needs it: positioned reads and writes, flush,
// truncate, map and lock. It knows nothing of pages.
//
// Four types have the File interface: OSFile, the operating system's file; Mem, a file in
// memory; the handles of Crash, a disk under a page cache that tells what a power failure
// could leave; and Inject, which wraps any of them and makes calls fail. So each failure
// that the engine must survive can be made in a test:
//
//	disk := vfs.NewCrash("test.db", nil, nil)
//	... open a database on disk.Open(), commit ...
//	for content := range disk.Disks(rng, 4096, 10) {
//		... open content: the last acknowledged commit is there ...
//	}
//
// OSFile builds on Linux, Darwin, the BSDs except OpenBSD (whose mappings do not show
// later writes), Solaris, illumos, AIX and Windows. Files named os_*, lock_*, vec_*,
// identity_* and temp_* have what differs between systems.
//
// Except where a method says otherwise, errors name what was being done and the file, and
// wrap the system's error, so that errors.Is finds for example syscall.ENOSPC. After Close
// they wrap os.ErrClosed.
package vfs

import (
	"errors"
	"time"
)

// Errors that callers compare with ==.
var (
	// ErrTimeout is returned by File.Lock when the lock was not to be had in time.
	ErrTimeout = errors.New("timeout")
	// ErrMapping is wrapped by errors of File.Map.
	ErrMapping = errors.New("database isn't correctly mapped")
)

// File is an open file. All methods may be called concurrently, except Close,
// which must be the last call. Offsets, sizes and lengths are in bytes.
//
// A write that makes the file longer must not run at the same time as
// Truncate or Grow: whichever comes last would decide the file's length.
type File interface {
	// Name is the path that the file was opened with.
	Name() string
	// ReadAt follows io.ReaderAt; at the end of the file its error is io.EOF.
	ReadAt(p []byte, off int64) (int, error)
	// WriteAt follows io.WriterAt: a short write is an error.
	WriteAt(p []byte, off int64) (int, error)
	// WriteVec writes the buffers one after the other from off on, with as
	// few system calls as the platform allows. It writes all of them or
	// returns an error; then any part of them may have been written. Buffers
	// may be empty, and neither they nor bufs are changed or kept.
	WriteVec(bufs [][]byte, off int64) error
	// Identity is a number that the file keeps for as long as it exists, under whatever name,
	// and that a copy of it does not have; 0 if the system has none, or does not tell.
	Identity() uint64
	// Size is the file's length.
	Size() (int64, error)
	// Truncate sets the file's length, without reserving blocks. A new part
	// reads as zeros. Windows refuses to shorten a file below a mapping.
	Truncate(size int64) error
	// Grow makes the file size bytes long (it is never shortened) and
	// reserves the blocks of the new part where the file system can, so that
	// a full disk shows here and not in a flush. The new part reads as zeros.
	// After an error the file has its old length.
	Grow(size int64) error
	// Sync returns when the data written so far, and the size needed to read
	// it, are on the device.
	Sync() error
	// DropCache asks the system to forget n bytes from off on that it has in
	// memory and on the device, so that the next ReadAt comes from the device.
	// Bytes that are mapped, or not flushed, are kept; bytes around may be
	// forgotten too. After a failed flush the memory may hold what the device
	// does not. Where a system cannot, it does nothing.
	DropCache(off, n int64) error
	// Prefetch begins to read n bytes from off on that are not in memory, and does not wait for them. It
	// is a hint, as Mapping.Prefetch is.
	Prefetch(off, n int64)
	// Map maps the first length bytes read-only and shared: later writes
	// through the file show in it. If MapBeyondEnd is true length may exceed
	// the file's size; bytes past the end must not be touched until the
	// file has grown over them. Errors wrap ErrMapping.
	Map(length int64, opts MapOptions) (Mapping, error)
	// MapBeyondEnd tells whether Map accepts a length beyond the end of file.
	MapBeyondEnd() bool
	// Lock takes the advisory lock of the whole file, exclusive or shared,
	// trying at once and then every 50 ms until timeout has passed (0: for
	// ever). It returns ErrTimeout, bare, when it gives up, and any other
	// error at once. It must not be called on a file that holds the lock.
	Lock(exclusive bool, timeout time.Duration) error
	// Unlock gives the lock back; it does nothing when there is none.
	Unlock() error
	// Close closes the file and gives its lock back. Mappings stay valid
	// until they are closed.
	Close() error
}

// MapOptions are hints for File.Map.
type MapOptions struct {
	// Flags are further flags for mmap(2), for example MAP_POPULATE; ignored
	// where there is no mmap.
	Flags int
	// ReadAhead lets the system read ahead of what is looked at; where it cannot be told
	// about, it does what it does.
	ReadAhead bool
}

// Mapping is a mapped part of a file. Its methods may be called concurrently,
// except Close.
type Mapping interface {
	// Data is the mapped bytes. They must not be written to, nor used after Close.
	Data() []byte
	// Lock pins the first n bytes in memory (mlock). It may be called again
	// with a larger n, which pins what is new; a smaller n does nothing. n
	// must lie within the mapping and within the file. It returns an error
	// where the platform cannot, or the process may not, pin so much.
	Lock(n int64) error
	// Prefetch begins to read those of the n bytes from off on that are not in
	// memory, and does not wait for them. It is a hint: it reports nothing, a part
	// that lies outside of the mapping or the file is left out, and where a system
	// cannot, it does nothing.
	Prefetch(off, n int64)
	// Close unmaps and unpins. A second Close does nothing.
	Close() error
}
