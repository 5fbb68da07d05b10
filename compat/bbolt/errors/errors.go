// Package errors has the errors that a database returns. They are the values
// of package holdfast and may be compared with ==.
package errors

import "holdfast"

// Errors of opening and of using a database.
var (
	ErrDatabaseNotOpen = holdfast.ErrDatabaseNotOpen
	ErrInvalid         = holdfast.ErrInvalid
	ErrInvalidMapping  = holdfast.ErrInvalidMapping
	ErrVersionMismatch = holdfast.ErrVersionMismatch
	ErrChecksum        = holdfast.ErrChecksum
	ErrTimeout         = holdfast.ErrTimeout
)

// Errors of beginning and of ending a transaction.
var (
	ErrTxNotWritable      = holdfast.ErrTxNotWritable
	ErrTxClosed           = holdfast.ErrTxClosed
	ErrDatabaseReadOnly   = holdfast.ErrDatabaseReadOnly
	ErrFreePagesNotLoaded = holdfast.ErrFreePagesNotLoaded
)

// Errors of changing a key or a bucket.
var (
	ErrBucketNotFound     = holdfast.ErrBucketNotFound
	ErrBucketExists       = holdfast.ErrBucketExists
	ErrBucketNameRequired = holdfast.ErrBucketNameRequired
	ErrKeyRequired        = holdfast.ErrKeyRequired
	ErrKeyTooLarge        = holdfast.ErrKeyTooLarge
	ErrValueTooLarge      = holdfast.ErrValueTooLarge
	ErrMaxSizeReached     = holdfast.ErrMaxSizeReached
	ErrIncompatibleValue  = holdfast.ErrIncompatibleValue
	ErrSameBuckets        = holdfast.ErrSameBuckets
	ErrDifferentDB        = holdfast.ErrDifferentDB
)
