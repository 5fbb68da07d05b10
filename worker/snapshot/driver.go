package snapshot

import (
	"context"

	"holdfast/worker/mount"
)

// Layer is a snapshot as a driver sees it.
type Layer struct {
	ID  ID
	Dir string // its directory: snapshots/ID, or where it is now
}

// Tree is a snapshot with those below it.
type Tree struct {
	Layer
	Kind    Kind
	Parents []Layer // nearest first; committed, all of them
}

// Driver keeps the content of snapshots. Names, parents, leases, sizes, the order of things
// on the disk and removal are the Store's. A driver keeps no state in memory that it
// could not find again, and its methods are called concurrently, but for one snapshot only
// one of Create, Commit, Finish and Remove at a time, and Remove last.
//
// What a driver keeps of a snapshot is in Layer.Dir, or can be found by Layer.ID. Dir is not
// the same in all calls: Create sees new/ID, Remove trash/ID, the others snapshots/ID. So
// nothing that a driver keeps may depend on it.
//
// Package drivertest has the tests that every driver must pass.
type Driver interface {
	// Name is a word, such as "overlay". A Store remembers it, and is not opened with
	// another driver.
	Name() string

	// Create makes the content of an active snapshot or a view, which is that of its nearest
	// parent, or an empty directory of mode 0755. t.Dir is there, empty, of mode 0700. When
	// Create fails, the Store calls Remove.
	//
	// After it the content is still at its place when t.Dir is renamed.
	Create(ctx context.Context, t Tree) error

	// Commit is called before an active snapshot becomes a committed one, when it is not
	// written to any more. It may be called again, also after the snapshot was written to
	// again: the Store's transaction may fail. It must not take long; what does
	// belongs into Finish.
	Commit(ctx context.Context, t Tree) error

	// Mounts gives the mounts that show the content of an active snapshot or a view: writable
	// if t is active and readonly is not set. It changes nothing. The last of them is what is
	// wanted; if that is an overlay, those before it are lower layers of it that must be
	// mounted themselves, the topmost first.
	Mounts(ctx context.Context, t Tree, readonly bool) ([]mount.Mount, error)

	// Usage measures what the snapshot takes, without its parents. It may be called while the
	// snapshot is written to; a file that goes away meanwhile is not an error.
	Usage(ctx context.Context, t Tree) (Usage, error)

	// Remove removes what is not removed by deleting the files and directories in l.Dir,
	// which the Store does afterwards. l.Dir may not be there. It is called again if it fails
	// or was interrupted, so what is gone already is not an error. When ctx ends it
	// returns soon.
	Remove(ctx context.Context, l Layer) error
}

// Prober is a Driver that can tell whether it works in a directory. Open asks it; root is the
// directory of the Store.
type Prober interface {
	Probe(root string) error
}

// Starter is a Driver that has something to do before it is used: to make what it needs, and to take
// away what an earlier process has left. Open calls Start after Probe, when the directory is
// the Store's alone.
type Starter interface {
	Start(ctx context.Context, root string) error
}

// Rebaser is a Driver whose snapshots are changes only, so that one which was begun
// without a parent can be committed on top of one. Rebase is a mark and does nothing.
type Rebaser interface {
	Rebase()
}

// Finisher is a Driver that has something to do after a commit which takes long. The Store
// calls Finish in the background, and again after a crash, until it returns nil. The
// snapshot may be a parent, and mounts of its children may be in use, before, meanwhile and
// afterwards. Usage is asked again then.
type Finisher interface {
	// Finished tells whether there is nothing to do for the snapshot.
	Finished(l Layer) bool
	Finish(ctx context.Context, l Layer) error
}

// Syncer is a Driver whose content is not on the file system of the Store's directory, or
// that has a better way to flush. Sync returns when the content of t is on the disk; if t.ID
// is 0, that of all snapshots.
type Syncer interface {
	Sync(ctx context.Context, t Tree) error
}

// Digester is a Driver whose snapshots can have a digest of their content, so that they can be
// verified.
type Digester interface {
	// Digest reads all that the driver keeps of the content of a committed snapshot, that of
	// its parents not included, and gives a digest of it: the same one each time, and
	// another if anything has changed that a mount shows. If the driver is a Finisher, the
	// snapshot is finished. It is called concurrently with anything, also for one
	// snapshot; when that is being removed, what Digest returns is not used. What is not
	// there is fs.ErrNotExist; what the disk cannot read is the error that it gave.
	Digest(ctx context.Context, l Layer, o DigestOptions) (Digest, error)
}
