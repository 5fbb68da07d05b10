package content

import (
	"errors"
	"fmt"
)

// Errors of this package. They come wrapped with what was being done: compare with errors.Is.
var (
	// ErrNotFound: there is no content of that digest, or nothing is written under that ref.
	ErrNotFound = errors.New("not found")
	// ErrExists: there is content of that digest already.
	ErrExists = errors.New("already exists")
	// ErrInvalid: an argument that can never be right.
	ErrInvalid = errors.New("invalid argument")
	// ErrBusy: a writer has that ref, or there are as many writers as there may be.
	ErrBusy = errors.New("in use by another writer")
	// ErrMismatch: what was written has another size or digest than it was to have.
	ErrMismatch = errors.New("not what was expected")
	// ErrOffset: a place in the content where it cannot be read or written.
	ErrOffset = errors.New("offset out of range")
	// ErrCorrupt: what the file says of content is not what it should be.
	ErrCorrupt = errors.New("content metadata are corrupt")
	// ErrClosed: the Store or the Writer is closed.
	ErrClosed = errors.New("content store is closed")
)

// corruptf is an error that wraps ErrCorrupt.
func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}
