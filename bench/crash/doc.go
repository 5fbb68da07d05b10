// Package crash holds tests that cut the power. Random histories run on
// Holdfast over a disk that knows what has been flushed (vfs.Crash); at write
// boundaries, disks that a power failure could leave there are made and opened,
// by Holdfast and by bbolt.
//
// The oracle: the state found is that of the last acknowledged commit, or of the
// one under way; its structure checks; each page is reachable or free, and not
// both.
//
//	HOLDFAST_SEED=n    this history only
//	HOLDFAST_SOAK=10m  histories for that long
package crash
