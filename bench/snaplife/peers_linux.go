package snaplife

import (
	"errors"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/plugins/snapshots/native"
	theirs "github.com/containerd/containerd/v2/plugins/snapshots/overlay"

	"holdfast/worker/containerd"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/overlay"
)

// Peer opens snapshotters of one kind, with one set of options.
type Peer struct {
	Name string
	Note string // how it is opened, in a line
	// Open opens or makes the store in a directory. What it returns last closes it.
	Open func(root string) (snapshots.Snapshotter, func() error, error)
}

// NameOf is the name of a peer.
func NameOf(p Peer) string { return p.Name }

// metadataFile is what all peers call it.
const metadataFile = "metadata.db"

// All are the peers.
func All() []Peer {
	return []Peer{
		{"holdfast", "Holdfast as it is, driver overlay: what is in a snapshot is flushed before Commit returns, which containerd leaves to its caller", holdfastStore(snapshot.SyncCommit)},
		{"holdfast SyncDeferred", "Holdfast, driver overlay, which flushes what is in a snapshot within a second after Commit", holdfastStore(snapshot.SyncDeferred)},
		{"containerd overlay", "containerd's overlay snapshotter as it is", containerdOverlay()},
		{"containerd overlay async_remove", "containerd's overlay snapshotter, which deletes files when Cleanup is called", containerdOverlay(theirs.AsynchronousRemove)},
		{"containerd native", "containerd's native snapshotter, which copies the parent", containerdNative},
	}
}

func holdfastStore(mode snapshot.SyncMode) func(string) (snapshots.Snapshotter, func() error, error) {
	return func(root string) (snapshots.Snapshotter, func() error, error) {
		store, err := snapshot.Open(root, snapshot.Options{Driver: overlay.New(), Sync: mode})
		if err != nil {
			return nil, nil, err
		}
		namespace, err := store.ClientNamespace("containerd")
		if err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
		return containerd.New(namespace), store.Close, nil
	}
}

func containerdOverlay(opts ...theirs.Opt) func(string) (snapshots.Snapshotter, func() error, error) {
	return func(root string) (snapshots.Snapshotter, func() error, error) {
		return closed(theirs.NewSnapshotter(root, opts...))
	}
}

func containerdNative(root string) (snapshots.Snapshotter, func() error, error) {
	return closed(native.NewSnapshotter(root))
}

func closed(s snapshots.Snapshotter, err error) (snapshots.Snapshotter, func() error, error) {
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}
