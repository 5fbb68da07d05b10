package vfs

import (
	"sync/atomic"
	"time"
)

// Kind is a kind of call on a File or on one of its mappings.
type Kind int

// The kinds of calls that can fail for reasons outside the program.
const (
	KindRead     Kind = iota // ReadAt
	KindWrite                // WriteAt and WriteVec
	KindSync                 // Sync
	KindSize                 // Size
	KindTruncate             // Truncate
	KindGrow                 // Grow
	KindMap                  // Map
	KindMlock                // Mapping.Lock
	KindUnmap                // Mapping.Close
	KindLock                 // Lock
	KindUnlock               // Unlock
	KindClose                // Close

	// KindCount is the number of kinds: a loop from 0 to it sees each.
	KindCount
)

var kindNames = [KindCount]string{
	"read", "write", "sync", "size", "truncate", "grow",
	"map", "mlock", "unmap", "lock", "unlock", "close",
}

func (k Kind) String() string { return kindNames[k] }

// Op is one call, before it is made.
type Op struct {
	Kind Kind
	// N counts the calls of this kind on this Inject, the first is 1.
	N int64
	// Off is where a read or write begins.
	Off int64
	// Len is how many bytes are read, written, mapped or pinned, or the size
	// to truncate or grow to.
	Len int64
}

// PartialWrite is an error which a hook returns for a write that writes some
// bytes before it fails. The caller of the write gets Err.
type PartialWrite struct {
	// Bytes are written; if they are as many as were to be written, the
	// write is done and still reported as failed.
	Bytes int64
	Err   error
	// Silent: the caller is told that no byte was written.
	Silent bool
}

func (p *PartialWrite) Error() string { return "partial write: " + p.Err.Error() }

// Unwrap returns Err.
func (p *PartialWrite) Unwrap() error { return p.Err }

// FailNth returns a hook that fails the n-th call of a kind, counted from 1,
// with err.
func FailNth(kind Kind, n int64, err error) func(Op) error {
	return func(op Op) error {
		if op.Kind == kind && op.N == n {
			return err
		}
		return nil
	}
}

// Inject is a File that counts the calls on another one and asks a hook
// before each. When the hook returns an error the call is not made and
// returns this error as it is (Map wraps it together with ErrMapping), with
// two exceptions: a PartialWrite writes its bytes first, and Close closes the
// file even so, as close(2) does.
//
// The hook is called concurrently when the file is, and no lock is held: it
// may wait, to hold a call back.
type Inject struct {
	file   File
	hook   func(Op) error
	counts [KindCount]atomic.Int64
}

var _ File = (*Inject)(nil)

// NewInject wraps file. A nil hook lets every call through, for counting.
func NewInject(file File, hook func(Op) error) *Inject {
	if hook == nil {
		hook = func(Op) error { return nil }
	}
	return &Inject{file: file, hook: hook}
}

// Count is how many calls of the kind there were, failed ones included.
func (f *Inject) Count(kind Kind) int64 { return f.counts[kind].Load() }

func (f *Inject) before(kind Kind, off, length int64) error {
	return f.hook(Op{Kind: kind, N: f.counts[kind].Add(1), Off: off, Len: length})
}

// Name is the name of the wrapped file.
func (f *Inject) Name() string { return f.file.Name() }

// ReadAt is a KindRead.
func (f *Inject) ReadAt(p []byte, off int64) (int, error) {
	if err := f.before(KindRead, off, int64(len(p))); err != nil {
		return 0, err
	}
	return f.file.ReadAt(p, off)
}

// WriteAt is a KindWrite.
func (f *Inject) WriteAt(p []byte, off int64) (int, error) {
	err := f.before(KindWrite, off, int64(len(p)))
	if err == nil {
		return f.file.WriteAt(p, off)
	}
	if partial, ok := err.(*PartialWrite); ok {
		n, werr := f.file.WriteAt(p[:min(partial.Bytes, int64(len(p)))], off)
		switch {
		case werr != nil:
			return n, werr
		case partial.Silent:
			n = 0
		}
		return n, partial.Err
	}
	return 0, err
}

// WriteVec is one KindWrite, whose Len is that of all buffers together.
func (f *Inject) WriteVec(bufs [][]byte, off int64) error {
	var length int64
	for _, buf := range bufs {
		length += int64(len(buf))
	}
	err := f.before(KindWrite, off, length)
	if err == nil {
		return f.file.WriteVec(bufs, off)
	}
	if partial, ok := err.(*PartialWrite); ok {
		if werr := f.file.WriteVec(firstBytes(bufs, partial.Bytes), off); werr != nil {
			return werr
		}
		return partial.Err
	}
	return err
}

// firstBytes cuts bufs to their first n bytes.
func firstBytes(bufs [][]byte, n int64) [][]byte {
	var first [][]byte
	for _, buf := range bufs {
		buf = buf[:min(n, int64(len(buf)))]
		first = append(first, buf)
		n -= int64(len(buf))
	}
	return first
}

// Size is a KindSize.
func (f *Inject) Size() (int64, error) {
	if err := f.before(KindSize, 0, 0); err != nil {
		return 0, err
	}
	return f.file.Size()
}

// Truncate is a KindTruncate.
func (f *Inject) Truncate(size int64) error {
	if err := f.before(KindTruncate, 0, size); err != nil {
		return err
	}
	return f.file.Truncate(size)
}

// Grow is a KindGrow.
func (f *Inject) Grow(size int64) error {
	if err := f.before(KindGrow, 0, size); err != nil {
		return err
	}
	return f.file.Grow(size)
}

// Sync is a KindSync.
func (f *Inject) Sync() error {
	if err := f.before(KindSync, 0, 0); err != nil {
		return err
	}
	return f.file.Sync()
}

// Identity is the file's.
func (f *Inject) Identity() uint64 { return f.file.Identity() }

// DropCache is forwarded: it is advice, and its failure changes nothing.
func (f *Inject) DropCache(off, n int64) error { return f.file.DropCache(off, n) }

// Prefetch is forwarded.
func (f *Inject) Prefetch(off, n int64) { f.file.Prefetch(off, n) }

// Map is a KindMap. The mapping it returns is injected into as well.
func (f *Inject) Map(length int64, opts MapOptions) (Mapping, error) {
	if err := f.before(KindMap, 0, length); err != nil {
		return nil, mapError(f.Name(), length, err)
	}
	mapping, err := f.file.Map(length, opts)
	if err != nil {
		return nil, err
	}
	return &injectMapping{Mapping: mapping, file: f}, nil
}

// MapBeyondEnd is that of the wrapped file.
func (f *Inject) MapBeyondEnd() bool { return f.file.MapBeyondEnd() }

// Lock is one KindLock, however often it tries.
func (f *Inject) Lock(exclusive bool, timeout time.Duration) error {
	if err := f.before(KindLock, 0, 0); err != nil {
		return err
	}
	return f.file.Lock(exclusive, timeout)
}

// Unlock is a KindUnlock.
func (f *Inject) Unlock() error {
	if err := f.before(KindUnlock, 0, 0); err != nil {
		return err
	}
	return f.file.Unlock()
}

// Close is a KindClose.
func (f *Inject) Close() error {
	injected := f.before(KindClose, 0, 0)
	err := f.file.Close()
	if injected != nil {
		return injected
	}
	return err
}

// injectMapping is a mapping of an Inject.
type injectMapping struct {
	Mapping
	file *Inject
}

// Lock is a KindMlock.
func (m *injectMapping) Lock(n int64) error {
	if err := m.file.before(KindMlock, 0, n); err != nil {
		return err
	}
	return m.Mapping.Lock(n)
}

// Close is a KindUnmap.
func (m *injectMapping) Close() error {
	if err := m.file.before(KindUnmap, 0, int64(len(m.Data()))); err != nil {
		return err
	}
	return m.Mapping.Close()
}
