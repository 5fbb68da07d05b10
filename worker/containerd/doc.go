// Package containerd shows a namespace of a snapshot.Store as containerd's snapshots.Snapshotter:
//
//	store, err := snapshot.Open(root, snapshot.Options{Driver: overlay.New()})
//	names, err := store.ClientNamespace("containerd")
//	snapshotter := containerd.New(names)
//	mounts, err := snapshotter.Prepare(ctx, "work", "")
//	err = snapshotter.Commit(ctx, "layer", "work")
//
// Use a client's namespace: containerd fails when a snapshot goes that it has not removed, so
// nothing of a client is pruned. The methods do what containerd documents; errors are those of
// package snapshot and of errdefs at once. Close unmounts what was mounted for containerd; it does
// not close the Store.
//
// The package is a module of its own, as it needs containerd's. See docs/worker/snapshots.md.
package containerd
