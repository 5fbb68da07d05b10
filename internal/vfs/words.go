package vfs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// ErrShortened is wrapped by the error of a mapping of Words that could not be read or written.
var ErrShortened = errors.New("the mapped file was shortened by another process, or its file system failed")

// errNoBytes is the error of systems on which bytes of a file cannot be locked for an open file,
// or words of a mapping not be changed atomically for other processes.
var errNoBytes = fmt.Errorf("%w: it needs open file description locks (Linux 3.15) and atomic words of 64 bits", errors.ErrUnsupported)

// Words are the first bytes of a file, mapped for reading and writing and shared with every
// other mapping of the file, as words of 64 bits in the machine's byte order. Each call but
// Close is one atomic operation, for the threads of all processes that map the file; all of them
// have one order (they are sequentially consistent, as those of sync/atomic). An index out of
// range is a panic.
//
// What makes the unsafe part safe: words is made once, of a mapping that begins at a page's
// start, so each word is aligned; it has as many words as fit into the mapping; the mapping
// stays where it is until Close, which clears words first; and nothing but sync/atomic touches
// the memory.
//
// Any process that may write the file may shorten it. Then a call is a fault of the
// processor; see CatchFault.
type Words struct {
	name  string
	data  []byte
	words []uint64
}

// MapWords maps the first n bytes of the file, a multiple of 8, all of which must be there. The error wraps
// errors.ErrUnsupported where the system, or the processor, cannot.
func (f *OSFile) MapWords(n int) (*Words, error) {
	size, err := f.Size()
	if err == nil && (n <= 0 || n%8 != 0 || size < int64(n)) {
		err = fmt.Errorf("file of %d bytes: %w", size, syscall.EINVAL)
	}
	var data []byte
	if err == nil {
		err = f.control(func(fd uintptr) error {
			data, err = mapWords(fd, n)
			return err
		})
	}
	if err != nil {
		return nil, mapError(f.Name(), int64(n), cause(err))
	}
	start := (*uint64)(unsafe.Pointer(unsafe.SliceData(data)))
	return &Words{name: f.Name(), data: data, words: unsafe.Slice(start, n/8)}, nil
}

// Len is the number of words; 0 after Close.
func (w *Words) Len() int { return len(w.words) }

// Load reads word i.
func (w *Words) Load(i int) uint64 { return atomic.LoadUint64(&w.words[i]) }

// Store writes word i.
func (w *Words) Store(i int, v uint64) { atomic.StoreUint64(&w.words[i], v) }

// CompareAndSwap writes v to word i if it is old.
func (w *Words) CompareAndSwap(i int, old, v uint64) bool {
	return atomic.CompareAndSwapUint64(&w.words[i], old, v)
}

// Or sets bits of word i.
func (w *Words) Or(i int, bits uint64) { atomic.OrUint64(&w.words[i], bits) }

// AndNot clears bits of word i.
func (w *Words) AndNot(i int, bits uint64) { atomic.AndUint64(&w.words[i], ^bits) }

// Close unmaps. No other call may be under way, or come after it, but another Close.
func (w *Words) Close() error {
	data := w.data
	if data == nil {
		return nil
	}
	w.words, w.data = nil, nil
	return fileError("unmap", w.name, unmap(data))
}

// CatchFault is to be deferred, with what debug.SetPanicOnFault(true) returned: it sets that back,
// and gives failed an error that wraps ErrShortened, after a fault in the words. Other panics go on.
func (w *Words) CatchFault(before bool, failed func(error)) {
	debug.SetPanicOnFault(before)
	r := recover()
	if r == nil {
		return
	}
	fault, ok := r.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok || !w.has(fault.Addr()) {
		panic(r)
	}
	failed(fmt.Errorf("read or write the mapping of %s: %w", w.name, ErrShortened))
}

// has compares the address, and does not follow it.
func (w *Words) has(address uintptr) bool {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(w.data)))
	return len(w.data) > 0 && address >= start && address-start < uintptr(len(w.data))
}

// Inode is the numbers by which every process of the system knows the file. Unlike Identity, they may be those
// of another file when this one is gone.
func (f *OSFile) Inode() (device, number uint64, err error) {
	err = f.control(func(fd uintptr) error {
		device, number, err = inode(fd)
		return err
	})
	return device, number, fileError("look at", f.Name(), err)
}

// Access is the permissions of the file, and the numbers of its user and group.
func (f *OSFile) Access() (mode os.FileMode, user, group int, err error) {
	err = f.control(func(fd uintptr) error {
		mode, user, group, err = access(fd)
		return err
	})
	return mode, user, group, fileError("look at", f.Name(), err)
}

// TryLockByte takes the lock of the byte at off, which need not exist, for this open file; false if
// another open file has it, of this process or another one. It excludes other locks of bytes
// only, not that of Lock. The file must be open for writing. The lock ends with UnlockByte, or when the last descriptor
// and the last mapping of the open file are gone. The error wraps errors.ErrUnsupported where there are no such locks.
func (f *OSFile) TryLockByte(off int64) (ok bool, err error) {
	err = f.control(func(fd uintptr) error {
		ok, err = tryLockByte(fd, off)
		return err
	})
	return ok, fileError("lock a byte of", f.Name(), err)
}

// UnlockByte gives the lock of the byte at off back; it does nothing when there is none.
func (f *OSFile) UnlockByte(off int64) error {
	return fileError("unlock a byte of", f.Name(), f.control(func(fd uintptr) error { return unlockByte(fd, off) }))
}

// ByteLocked tells whether another open file has the lock of the byte at off, and of this byte alone, which only one
// that is open for writing can.
func (f *OSFile) ByteLocked(off int64) (locked bool, err error) {
	err = f.control(func(fd uintptr) error {
		locked, err = byteLocked(fd, off)
		return err
	})
	return locked, fileError("look at a lock of", f.Name(), err)
}
