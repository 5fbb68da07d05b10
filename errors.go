package holdfast

import (
	"errors"

	"holdfast/internal/bucket"
	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/tree"
	"holdfast/internal/vfs"
)

// Errors of opening a database and of calls on it. They are returned as they
// are, so that they can be compared with ==.
var (
	// ErrDatabaseNotOpen is returned by calls on a DB that was not opened or
	// has been closed.
	ErrDatabaseNotOpen = pager.ErrDatabaseNotOpen
	// ErrInvalid is returned for a file whose two meta pages are both no
	// bbolt metas: most likely it is not a database.
	ErrInvalid = page.ErrInvalid
	// ErrInvalidMapping is wrapped by errors of mapping the file into memory.
	ErrInvalidMapping = vfs.ErrMapping
	// ErrVersionMismatch is returned for a file of another format version.
	ErrVersionMismatch = page.ErrVersionMismatch
	// ErrChecksum is returned for a file whose metas both fail their checksum.
	ErrChecksum = page.ErrChecksum
	// ErrTimeout is returned when the file's lock was not to be had within
	// Options.Timeout.
	ErrTimeout = vfs.ErrTimeout
)

// Errors of beginning and ending a transaction.
var (
	// ErrTxNotWritable: a reading transaction was to change something.
	ErrTxNotWritable = bucket.ErrTxNotWritable
	// ErrTxClosed is returned by calls on a transaction that has ended.
	ErrTxClosed = errors.New("tx closed")
	// ErrDatabaseReadOnly is returned by a writing transaction on a database
	// that was opened for reading only.
	ErrDatabaseReadOnly = pager.ErrDatabaseReadOnly
	// ErrFreePagesNotLoaded is returned by calls that need the free pages on a
	// read-only database opened without PreLoadFreelist.
	ErrFreePagesNotLoaded = pager.ErrFreePagesNotLoaded
)

// Errors of changing keys and buckets.
var (
	// ErrBucketNotFound is returned for a bucket that does not exist.
	ErrBucketNotFound = bucket.ErrBucketNotFound
	// ErrBucketExists: there is a bucket of that name already.
	ErrBucketExists = bucket.ErrBucketExists
	// ErrBucketNameRequired: the name of a new bucket is empty.
	ErrBucketNameRequired = bucket.ErrBucketNameRequired
	// ErrKeyRequired: a key to put is empty.
	ErrKeyRequired = bucket.ErrKeyRequired
	// ErrKeyTooLarge is returned for a key of more than MaxKeySize bytes.
	ErrKeyTooLarge = bucket.ErrKeyTooLarge
	// ErrValueTooLarge is returned for a value of more than MaxValueSize bytes.
	ErrValueTooLarge = bucket.ErrValueTooLarge
	// ErrMaxSizeReached is returned by a commit for which the next step of the
	// file's growth would exceed MaxSize.
	ErrMaxSizeReached = pager.ErrMaxSizeReached
	// ErrIncompatibleValue is returned when a key is used as a bucket, or a
	// bucket as a key.
	ErrIncompatibleValue = bucket.ErrIncompatibleValue
	// ErrSameBuckets is returned when a bucket would be moved to where it is.
	ErrSameBuckets = bucket.ErrSameBuckets
	// ErrDifferentDB is returned when a bucket would be moved to another database.
	ErrDifferentDB = bucket.ErrDifferentDB
)

// Errors that bbolt does not know.
var (
	// ErrTooDeep is returned when creating a bucket more than 10,000 deep.
	ErrTooDeep = bucket.ErrTooDeep
	// ErrUnordered is returned by Bucket.Append for a key that is not after the
	// last one of the bucket.
	ErrUnordered = bucket.ErrUnordered
	// ErrTooLarge is returned on processors of 32 bits for values that are too
	// large together.
	ErrTooLarge = tree.ErrTooLarge
)

// ErrStopped is wrapped by the error of the commit, Sync or Close that finds that
// a flush failed or that the file was shortened from outside, and from then on of
// Begin(true), Update, Batch and Sync. What the disk holds is not known then, nor
// whether the commit that failed is there; closing the database and opening it
// again finds out. Readers go on, except at pages that were cut off
// (ErrUnreadable).
var ErrStopped = pager.ErrStopped

// ErrUnreadable is wrapped by the *CorruptError of a page that the system could
// not deliver: the file was shortened while it was open, or its disk
// failed. A transaction that met one cannot be committed.
//
// Within the function of View, Update and Batch, on its own goroutine, reading the
// bytes of keys and values is covered too: the function is then left where it
// stands, as by a panic (its deferred calls run, nothing else), and View, Update
// or Batch returns the error. So release by defer what the function holds. In a
// transaction from Begin only the calls of this package are covered. Reading the
// bytes of a key or value there, or on another goroutine, ends the program, as
// with any mapped file, unless that goroutine has called
// debug.SetPanicOnFault(true), which makes it a panic.
var ErrUnreadable = page.ErrUnreadable

// ErrTornCopy is wrapped by the *CorruptError of opening a file in which pages are
// missing that were flushed before its meta pages were written: most likely it is a copy
// of a file that was in use, made by a tool that knows nothing of databases. Not every such
// copy is noticed. Copy the file again with "holdfast compact", with Tx.WriteTo, or while no
// program has it open; "holdfast salvage" saves what the copy has.
var ErrTornCopy = pager.ErrTornCopy

// CorruptError reports damage in the file and names the page where it was met.
// Find it with errors.As.
type CorruptError = page.CorruptError

// Pgid is a page number.
type Pgid = page.ID
