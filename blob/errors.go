package blob

import (
	"errors"
	"fmt"
)

// Errors of this package. They come wrapped with what was being done: compare
// with errors.Is.
var (
	// ErrNotStore: the bucket is not a store of blobs.
	ErrNotStore = errors.New("bucket is not a blob store")
	// ErrNotEmpty: a store was to be created in a bucket that holds something.
	ErrNotEmpty = errors.New("bucket is not empty")
	// ErrNotFound: the store has no such blob.
	ErrNotFound = errors.New("blob not found")
	// ErrMissing: a chunk that a blob is made of is not in the store.
	ErrMissing = errors.New("chunk is missing")
	// ErrCorrupt: stored bytes are not what they should be.
	ErrCorrupt = errors.New("blob store is corrupt")
	// ErrSizeMismatch: a blob has another size than its writer was told to expect.
	ErrSizeMismatch = errors.New("blob has another size than expected")
	// ErrDigestMismatch: a blob has another digest than its writer was told to expect.
	ErrDigestMismatch = errors.New("blob has another digest than expected")
	// ErrWriterClosed: the transaction of a writer has ended.
	ErrWriterClosed = errors.New("blob writer is closed")
	// ErrUnfinished: another Store of the transaction has writers that are open, or chunks that are not in
	// the buckets yet.
	ErrUnfinished = errors.New("blob store has something unfinished")
	// ErrInvalidRef: bytes or text that are not a reference.
	ErrInvalidRef = errors.New("invalid blob reference")
	// ErrAlgorithm: a reference of one hash function was given to a store of another.
	ErrAlgorithm = errors.New("blob reference is of another hash function than the store")
	// ErrKey: a store was opened without its key, with another one, or with a key though it is not encrypted.
	ErrKey = errors.New("wrong key of a blob store")
	// ErrOptions: options that no store can have.
	ErrOptions = errors.New("invalid options of a blob store")
)

// CorruptError is damage that a reader met: the chunk that holds the bytes of
// the blob from Offset on, or leads to them, is missing or is not what its
// address says. Nothing of such a chunk is ever handed out. It wraps ErrCorrupt,
// and ErrMissing if the chunk is missing.
type CorruptError struct {
	Ref    Ref     // the blob that was read
	Offset int64   // where in the blob the content of the chunk begins
	Chunk  Address // the chunk
	Level  uint8   // 0: a leaf, else a node of the tree
	Reason error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("blob %v: chunk %v at offset %d: %v", e.Ref, e.Chunk, e.Offset, e.Reason)
}

// Unwrap gives ErrCorrupt and the reason.
func (e *CorruptError) Unwrap() []error { return []error{ErrCorrupt, e.Reason} }

// corruptf is an error that wraps ErrCorrupt.
func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}
