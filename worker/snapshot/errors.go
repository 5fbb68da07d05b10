package snapshot

import "errors"

// Errors of this package. They come wrapped with what was being done: compare with
// errors.Is.
var (
	// ErrNotFound: there is no snapshot, parent or lease of that name.
	ErrNotFound = errors.New("not found")
	// ErrExists: the name is taken.
	ErrExists = errors.New("already exists")
	// ErrInvalid: an argument that can never be right.
	ErrInvalid = errors.New("invalid argument")
	// ErrKind: a snapshot of that kind cannot do that.
	ErrKind = errors.New("wrong kind of snapshot")
	// ErrInUse: the snapshot has children or leases, or is pinned.
	ErrInUse = errors.New("snapshot is in use")
	// ErrClosed: the Store is closed.
	ErrClosed = errors.New("snapshot store is closed")
	// ErrLocked: another process has the Store open.
	ErrLocked = errors.New("snapshot store is in use by another process")
	// ErrDistrusted: the machine went down before the content of the snapshot, or of one
	// below it, was flushed. Remove it and make it anew; or look at its content, and
	// call Trust.
	ErrDistrusted = errors.New("content may be incomplete: the machine went down before it was on the disk")
	// ErrDamaged: the content of the snapshot, or of one below it, is not that of its digest any
	// more, or cannot be read. Remove it and make it anew; or put back what it was, and call
	// Verify; or look at its content, and call Trust.
	ErrDamaged = errors.New("content is damaged")
	// ErrNoDigest: the snapshot has no digest with which its content could be compared.
	ErrNoDigest = errors.New("snapshot has no digest")
	// ErrSuspect: flushing failed after the snapshot was begun, so it cannot be committed.
	// Remove it and begin anew.
	ErrSuspect = errors.New("content may be incomplete: flushing it failed")
	// ErrMissing: the directory of a snapshot is not there.
	ErrMissing = errors.New("directory of the snapshot is missing")
	// ErrCorrupt: metadata are not what they should be.
	ErrCorrupt = errors.New("snapshot metadata are corrupt")
	// ErrNoMetadata: there are snapshots, but no metadata.db.
	ErrNoMetadata = errors.New("there are snapshots, but no metadata.db")
	// ErrNotStore: there is something in the directory, and it is not a Store.
	ErrNotStore = errors.New("not a snapshot store")
	// ErrOtherDriver: the Store belongs to another driver.
	ErrOtherDriver = errors.New("snapshot store of another driver")
	// ErrUnsupported: the driver, the file system or this operating system cannot do that.
	ErrUnsupported = errors.New("not supported")
)
