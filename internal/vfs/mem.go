package vfs

import (
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"syscall"
	"time"
)

// memMax is the length in bytes beyond which a Mem refuses to grow or map
// (64 GiB, or 1 GiB where an int is short), so that an absurd length is an
// error and not the end of the process.
const memMax = (math.MaxInt >> 1) & (1<<36 - 1)

// Mem is a file in memory. Its handles (Open) share its bytes and exclude each
// other with Lock as handles of a real file do. It lasts as long as anything
// refers to it. Growing it beyond memMax is an error, syscall.EFBIG.
//
// A mapping shows every later write, however the file grew since. Mapping or
// truncating to n bytes needs n bytes of memory, also beyond the file's end.
type Mem struct {
	name string

	mu   sync.Mutex
	size int64
	// arrays are copies of the file, the longest last. That one is at least
	// size bytes long; the others are there because they are still mapped,
	// and are written to as far as they reach. Bytes past size are zero, or
	// cutOff in an array that was mapped when they were cut off.
	arrays []*memArray
	// lockers are the handles that hold the lock; true is exclusive.
	lockers map[*memFile]bool
}

// memArray is memory that mappings may point into, so it never moves.
type memArray struct {
	data     []byte
	mappings int
}

// NewMem returns an empty file.
func NewMem(name string) *Mem {
	return &Mem{name: name, arrays: []*memArray{{}}, lockers: map[*memFile]bool{}}
}

// Open returns a new handle. It may be called concurrently.
func (m *Mem) Open() File { return &memFile{mem: m} }

// Bytes returns a copy of the content.
func (m *Mem) Bytes() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]byte{}, m.newest().data[:m.size]...)
}

// Clone returns a file with the same name and a copy of the content, without
// handles, mappings and locks.
func (m *Mem) Clone() *Mem {
	clone := NewMem(m.name)
	content := m.Bytes()
	clone.arrays[0].data = content
	clone.size = int64(len(content))
	return clone
}

func (m *Mem) newest() *memArray { return m.arrays[len(m.arrays)-1] }

// reserve makes the newest array at least n bytes long.
func (m *Mem) reserve(n int64) {
	last := m.newest()
	if n <= int64(len(last.data)) {
		return
	}
	longer := &memArray{data: make([]byte, n)}
	copy(longer.data, last.data[:m.size])
	if last.mappings == 0 {
		m.arrays = m.arrays[:len(m.arrays)-1]
	}
	m.arrays = append(m.arrays, longer)
}

func (m *Mem) write(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	end := off + int64(len(p))
	if end > m.size {
		if have := int64(len(m.newest().data)); end > have {
			m.reserve(max(end, min(2*have, memMax)))
		}
		m.clear(m.size, off)
		m.size = end
	}
	for _, array := range m.arrays {
		if off < int64(len(array.data)) {
			copy(array.data[off:], p)
		}
	}
}

// cutOff is what mappings show where the file was cut off. Of a real file that is
// no byte at all: a program that reads there ends, and here at least gets nothing sensible.
const cutOff = 0xEE

func (m *Mem) truncate(size int64) {
	m.reserve(size)
	for _, array := range m.arrays {
		end := min(m.size, int64(len(array.data)))
		for i := size; i < end; i++ {
			array.data[i] = cutOff
		}
	}
	m.clear(m.size, size)
	m.size = size
}

// clear makes bytes zero that become part of the file again.
func (m *Mem) clear(from, to int64) {
	for _, array := range m.arrays {
		if end := min(to, int64(len(array.data))); from < end {
			clear(array.data[from:end])
		}
	}
}

// unmap forgets arrays that are no longer mapped, except the newest.
func (m *Mem) unmap(array *memArray) {
	m.mu.Lock()
	defer m.mu.Unlock()
	array.mappings--
	kept := m.arrays[:0]
	last := m.newest()
	for _, other := range m.arrays {
		if other.mappings > 0 || other == last {
			kept = append(kept, other)
		}
	}
	clear(m.arrays[len(kept):])
	m.arrays = kept
}

// memFile is a handle of a Mem. Its fields are guarded by mem.mu.
type memFile struct {
	mem    *Mem
	closed bool
}

// do runs fn on the file, which no other handle uses meanwhile.
func (f *memFile) do(doing string, fn func(m *Mem) error) error {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if f.closed {
		return fileError(doing, f.mem.name, os.ErrClosed)
	}
	return fileError(doing, f.mem.name, fn(f.mem))
}

func (f *memFile) Name() string { return f.mem.name }

func (f *memFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.do("read", func(m *Mem) error {
		if off < 0 {
			return errNegativeOffset
		}
		n = copy(p, m.newest().data[min(off, m.size):m.size])
		return nil
	})
	if err == nil && n < len(p) {
		// io.ReaderAt: bare, as callers compare it.
		err = io.EOF
	}
	return n, err
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.WriteVec([][]byte{p}, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *memFile) WriteVec(bufs [][]byte, off int64) error {
	return f.do("write", func(m *Mem) error {
		if off < 0 {
			return errNegativeOffset
		}
		room := memMax - off
		for _, buf := range bufs {
			if room -= int64(len(buf)); room < 0 {
				return syscall.EFBIG
			}
		}
		for _, buf := range bufs {
			m.write(buf, off)
			off += int64(len(buf))
		}
		return nil
	})
}

func (f *memFile) Size() (size int64, err error) {
	err = f.do("seek", func(m *Mem) error {
		size = m.size
		return nil
	})
	return size, err
}

func (f *memFile) Truncate(size int64) error {
	return f.do("truncate", func(m *Mem) error {
		if size < 0 {
			return syscall.EINVAL
		}
		if size > memMax {
			return syscall.EFBIG
		}
		m.truncate(size)
		return nil
	})
}

func (f *memFile) Grow(size int64) error {
	return f.do("grow", func(m *Mem) error {
		if size > memMax {
			return syscall.EFBIG
		}
		if size > m.size {
			m.truncate(size)
		}
		return nil
	})
}

func (f *memFile) Sync() error { return f.do("flush", func(*Mem) error { return nil }) }

// Identity is 0: bytes in memory are not a file of the system.
func (f *memFile) Identity() uint64 { return 0 }

// DropCache has nothing to do: there is no device.
func (f *memFile) DropCache(int64, int64) error { return nil }

// Prefetch has nothing to do either.
func (f *memFile) Prefetch(int64, int64) {}

func (f *memFile) Map(length int64, _ MapOptions) (Mapping, error) {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if f.closed {
		return nil, mapError(f.mem.name, length, os.ErrClosed)
	}
	if length <= 0 || length > memMax {
		return nil, mapError(f.mem.name, length, fmt.Errorf("length out of range: %w", syscall.EINVAL))
	}
	f.mem.reserve(length)
	array := f.mem.newest()
	array.mappings++
	return &memMapping{mem: f.mem, array: array, data: array.data[:length:length]}, nil
}

func (f *memFile) MapBeyondEnd() bool { return true }

func (f *memFile) Lock(exclusive bool, timeout time.Duration) error {
	return retryLock(timeout, func() (ok bool, err error) {
		err = f.do("lock", func(m *Mem) error {
			if ok = m.lockable(f, exclusive); ok {
				m.lockers[f] = exclusive
			}
			return nil
		})
		return ok, err
	})
}

// lockable tells whether no other handle's lock is in the way of f's.
func (m *Mem) lockable(f *memFile, exclusive bool) bool {
	for other, otherExclusive := range m.lockers {
		if other != f && (exclusive || otherExclusive) {
			return false
		}
	}
	return true
}

func (f *memFile) Unlock() error {
	return f.do("unlock", func(m *Mem) error {
		delete(m.lockers, f)
		return nil
	})
}

func (f *memFile) Close() error {
	return f.do("close", func(m *Mem) error {
		delete(m.lockers, f)
		f.closed = true
		return nil
	})
}

// memMapping is a mapping of a Mem.
type memMapping struct {
	mem   *Mem
	array *memArray
	data  []byte
}

func (m *memMapping) Data() []byte { return m.data }

// Lock has nothing to do.
func (m *memMapping) Lock(n int64) error { return checkPin(m.mem.name, n, m.data) }

// Prefetch has nothing to do.
func (m *memMapping) Prefetch(int64, int64) {}

func (m *memMapping) Close() error {
	if m.data == nil {
		return nil
	}
	m.data = nil
	m.mem.unmap(m.array)
	return nil
}
