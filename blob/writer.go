package blob

import (
	"errors"
	"io"
)

// Writer writes one blob after the other, each in pieces of any size: how it
// is cut into chunks depends on the content only. Commit ends a blob. A Writer is for
// one goroutine.
//
// An error of Write or ReadFrom gives up the blob; Commit returns it
// too, and nothing of the blob is stored. So does a transaction that
// ends before Commit.
type Writer struct{}

// Writer makes a Writer. It can be used again after Commit and Abort, and is
// best used for many blobs, for it keeps its buffers.
func (s *Store) Writer() *Writer { return &Writer{} }

// Expect has the blob refused if it does not have size bytes: ErrSizeMismatch, by the
// first Write beyond and by Commit. It holds for the blob being written.
func (w *Writer) Expect(size int64) {}

// ExpectDigest has Commit refuse a blob whose SHA-256 as a whole is another:
// ErrDigestMismatch. It implies Digest, and holds for the blob being written. It must be
// called before the first Write.
func (w *Writer) ExpectDigest(sum [32]byte) {}

// ExpectRef has Commit refuse a blob that is not the one that r names: ErrSizeMismatch,
// ErrDigestMismatch. It holds for the blob being written.
func (w *Writer) ExpectRef(r Ref) {}

// Digest says whether the SHA-256 of whole blobs is computed beside
// the addresses of their chunks, by a goroutine of its own. It must be called before the
// first Write of a blob and holds for all that follow.
func (w *Writer) Digest(on bool) {}

// DigestSum is the SHA-256 of the whole blob that was committed last, if Digest or
// ExpectDigest was set for it.
func (w *Writer) DigestSum() (sum [32]byte, ok bool) { return }

// Concurrent says whether a goroutine, one for each Writer with an unfinished blob, hashes
// leaves while the caller's goroutine stores the ones before. It must be called before the first
// Write of a blob and holds for all that follow.
func (w *Writer) Concurrent(on bool) {}

// Size is how many bytes of the blob were written.
func (w *Writer) Size() int64 { return 0 }

// Write writes p to the blob. p is not kept.
func (w *Writer) Write(p []byte) (int, error) { return 0, errors.ErrUnsupported }

// ReadFrom writes all that r gives until io.EOF. Any other error of r gives the blob
// up, io.ErrUnexpectedEOF and temporary ones too: it is not known what is missing.
// A reader that gives neither bytes nor an error many times in a row is
// io.ErrNoProgress.
func (w *Writer) ReadFrom(r io.Reader) (int64, error) { return 0, errors.ErrUnsupported }

// Commit ends the blob and counts one use of it. If it returns an error
// the blob is given up. The blob is in the file when the transaction has committed.
func (w *Writer) Commit() (Ref, error) { return Ref{}, errors.ErrUnsupported }

// Abort gives up the blob. What of it is used by nobody else is not stored.
// Without a blob begun it does nothing.
func (w *Writer) Abort() {}
