package blob

import (
	"errors"
	"io"
)

// Reader reads a blob. Each chunk is verified against its address when it is
// first touched in this Store; a mismatch is a *CorruptError, and nothing of the chunk
// is handed out. ReadAt may be called by several goroutines at once in a
// reading transaction; Read, Seek and WriteTo are for one.
type Reader struct{}

// Reader opens the blob that ref names. It is ErrNotFound if the store has
// no such blob, ErrAlgorithm if ref is of another hash function.
func (s *Store) Reader(ref Ref) (*Reader, error) { return nil, errors.ErrUnsupported }

// Size is the size of the blob in bytes.
func (r *Reader) Size() int64 { return 0 }

// Address is the address of the blob.
func (r *Reader) Address() Address { return Address{} }

// Ref is the reference that the reader was opened with.
func (r *Reader) Ref() Ref { return Ref{} }

// Read reads from where the last Read or Seek ended.
func (r *Reader) Read(p []byte) (int, error) { return 0, errors.ErrUnsupported }

// ReadAt reads the bytes at offset, io.EOF behind the end.
func (r *Reader) ReadAt(p []byte, offset int64) (int, error) { return 0, errors.ErrUnsupported }

// Seek sets where Read and WriteTo go on.
func (r *Reader) Seek(offset int64, whence int) (int64, error) { return 0, errors.ErrUnsupported }

// WriteTo writes the rest of the blob to w, leaf by leaf, without copying.
func (r *Reader) WriteTo(w io.Writer) (int64, error) { return 0, errors.ErrUnsupported }
