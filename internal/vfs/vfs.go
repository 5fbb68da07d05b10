// Package vfs is a file as the engine needs it: positioned reads and writes,
// flush, truncate, map and lock. It knows nothing of pages.
//
// Three implementations share the File interface: the operating system's file
// (OS), a file in memory (Mem) and a wrapper that injects errors (Inject).
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
// which must be the last call.
type File interface {
	// Name is the path that the file was opened with.
	Name() string
	// ReadAt follows io.ReaderAt.
	ReadAt(p []byte, off int64) (int, error)
	// WriteAt follows io.WriterAt: a short write is an error.
	WriteAt(p []byte, off int64) (int, error)
	// WriteVec writes the buffers one behind the other from off on, with as
	// few system calls as the platform allows. It writes all of them or
	// returns an error.
	WriteVec(bufs [][]byte, off int64) error
	// Size is the file's length in bytes.
	Size() (int64, error)
	// Truncate sets the file's length, without reserving blocks.
	Truncate(size int64) error
	// Grow makes the file size bytes long (it is never shortened) and
	// reserves the blocks of the new part where the file system can, so that
	// a full disk shows here and not in a flush.
	Grow(size int64) error
	// Sync returns when the data written so far, and the size needed to read
	// it, are on the device.
	Sync() error
	// Map maps the first length bytes read-only and shared: later writes
	// through the file show in it. If MapBeyondEnd is true length may exceed
	// the file's size; bytes behind the end must not be touched until the
	// file has grown over them.
	Map(length int64, opts MapOptions) (Mapping, error)
	// MapBeyondEnd tells whether Map accepts a length beyond the end of file.
	MapBeyondEnd() bool
	// Lock takes the advisory lock of the whole file, exclusive or shared,
	// trying every 50 ms until timeout has passed (0: for ever). It returns
	// ErrTimeout, bare, when it gives up.
	Lock(exclusive bool, timeout time.Duration) error
	// Unlock gives the lock back.
	Unlock() error
	// Close closes the file. Mappings stay valid until they are closed.
	Close() error
}

// MapOptions are hints for File.Map.
type MapOptions struct {
	// Flags are further flags for mmap(2), for example MAP_POPULATE; ignored
	// where there is no mmap.
	Flags int
}

// Mapping is a mapped part of a file.
type Mapping interface {
	// Data is the mapped bytes. They must not be written to, nor used after Close.
	Data() []byte
	// Lock pins the first n bytes in memory (mlock). It may be called again
	// with a larger n. An error where the platform cannot.
	Lock(n int64) error
	// Close unmaps.
	Close() error
}
