// Package snaplife replays the life of a build worker's snapshots, day after day, on Holdfast and on
// containerd's snapshotters, and measures each of them on its first day and after each stretch of days.
// What is measured has the form of package age, whose reports show it.
//
// On a day an image is pulled, a chain of layers, and programs are built on it: chains of steps, each of which prepares
// a snapshot, mounts it, writes and removes files, unmounts and commits. Cycles prepare snapshots and remove them
// again. A container and a view of each build stay until it is removed, which it is when Config.Retention newer ones are
// there. Every so many days an operator prunes: all but the newest tenth of what may be live is removed. An image on
// which nothing stands goes when there is a newer one. Everything is deterministic.
//
// All stores stand in one directory, in one process, and are measured interleaved. Between two of them the file system is
// flushed, as far as it is not measured: no store waits for what another has written.
//
// After each stretch, before and after it is measured, the names, kinds, parents and labels of each store are compared
// with a model, and the files of some snapshots, seen through a mount. A store that lost a snapshot, or a file, fails
// the run.
//
// The package is a module of its own, as it needs containerd's.
package snaplife
