// Package snapshot keeps directory trees under names, each made from a parent that never changes
// again: what containerd calls a snapshotter. Metadata are in a Holdfast file, so an operation
// costs the same whatever the number of snapshots. How trees are kept is the business of a Driver.
//
// # Life of a snapshot
//
// Open opens a Store, and Store.Namespace returns a namespace of names in it:
//
//	store, err := snapshot.Open(root, snapshot.Options{Driver: overlay.New()})
//	names, err := store.Namespace("local")
//
// Prepare makes an active snapshot. It is empty, or begins with the content of a committed parent.
// The caller mounts what Prepare returns, which is what Mounts returns later, and writes:
//
//	mounts, err := names.Prepare(ctx, "work", "debian")
//
// Commit makes it a committed snapshot under a new name. It never changes, and others can begin
// with it. The active name is free again:
//
//	err = names.Commit(ctx, "debian-with-gcc", "work")
//
// View shows a committed snapshot without the right to write. Remove removes one that has no child;
// its tree is deleted in the background:
//
//	mounts, err = names.View(ctx, "look", "debian-with-gcc")
//	err = names.Remove(ctx, "look")
//
// What is not needed any more is not removed by hand: package prune does it, by policies. Lease and
// Pin keep a snapshot from it. A service that removes its snapshots itself, such as containerd, gets
// its namespace from Store.ClientNamespace, of which nothing is pruned.
//
// # Crashes
//
// With the default options a Commit that has returned survives a power failure, content included.
// A process that is killed leaves nothing that the next Open does not find. docs/worker/snapshots.md
// and docs/worker/recovery.md say what an operator should know, docs/worker/internals.md what is on
// the disk and what always holds (W1 to W8).
package snapshot
