// Package disk keeps account of the room on a file system, so that a step is refused before it
// begins rather than failing on a full disk.
//
// # Room for a step
//
// Open returns a Space for a directory. Reserve promises bytes to a caller, all of them or none, with
// the inodes that go with them (FS.Share), and calls MakeRoom if there are too few; ErrFull says that
// it was not enough:
//
//	space, err := disk.Open(root, disk.Options{MakeRoom: pruner.MakeRoom, Emergency: 64 << 20})
//	r, err := space.Reserve(ctx, 256<<20)
//	defer r.Release()
//
// # The emergency file
//
// A Space holds a file of Options.Emergency bytes beside the metadata. GiveUp deletes it when the
// disk is full all the same, so that metadata can still be written; it is what
// snapshot.Options.Full wants. Restore makes the file anew when there is room.
//
// LimitTrees bounds directories by a project quota of XFS or ext4. Measure tells of a file system.
// See docs/worker/pruning.md, "Room for a step".
package disk
