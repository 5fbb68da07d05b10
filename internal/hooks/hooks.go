// Package hooks holds the functions through which this repository reaches what the engine
// does not make public. The root package sets them when it is initialized, and nothing
// else does. It cannot be imported here, so its types are any: *holdfast.DB, *holdfast.Tx
// and *holdfast.Bucket. Package bridge gives what blobs and the command use its types
// back, and holdfast/test/hook does for tests.
package hooks

import (
	"context"

	"holdfast/internal/autovacuum"
	"holdfast/internal/bucket"
	"holdfast/internal/longwait"
	"holdfast/internal/pager"
	"holdfast/internal/tree"
	"holdfast/internal/vfs"
)

// Of a database.
var (
	// Open opens the database in file, with a *holdfast.Options.
	Open func(file vfs.File, options any) (db any, err error)

	// OpenExisting opens the database in file as Reseal does: it creates and commits nothing.
	OpenExisting func(file vfs.File) (db any, err error)

	// Reseal is holdfast.Reseal of file, with a holdfast.ResealOptions, and returns a holdfast.Resealed.
	Reseal func(ctx context.Context, file vfs.File, options any) (resealed any, err error)

	Pager      func(db any) *pager.Pager
	Waits      func(db any) *longwait.Waits
	AutoVacuum func(db any) *autovacuum.Auto // nil: it is off
)

// Of a transaction.
var (
	// State is what the transaction sees. The error is that of a call on a transaction that
	// has ended or can only be rolled back.
	State func(tx any) (*pager.State, error)

	// Source gives the pages that a read transaction sees.
	Source func(tx any) tree.Reader

	// Foreign is nil but for a transaction on the database of another process.
	Foreign func(tx any) *pager.Foreign

	// Writer is nil for a read transaction.
	Writer func(tx any) *pager.WriteTx

	// OnWritten has fn called after the transaction has committed changes, when nothing of the memory
	// is needed any more that it was given.
	OnWritten func(tx any, fn func())

	// Named puts the file's name before an error that reports damage.
	Named func(tx any, err error) error

	// Fault is the error of a fault in the transaction's pages that was recovered as a panic, which is not kept; nil if
	// it was another panic. It is for a deferred function.
	Fault func(tx, recovered any) error

	// BeginProbe begins to collect the damage that calls on the transaction meet, and
	// EndProbe returns it. recovered is what ended the calls by a panic.
	BeginProbe func(tx any) (Probe, error)
	EndProbe   func(tx any, p Probe, recovered any) error
)

// Probe is what BeginProbe changes and EndProbe restores.
type Probe struct {
	Damage       *error // that the transaction had met before
	PanicOnFault bool
}

// Of a bucket.
var (
	// Bucket is the engine's own part of a bucket.
	Bucket func(b any) *bucket.Bucket
)
