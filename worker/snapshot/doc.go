// Package snapshot keeps directory trees under names, each made from a parent that never
// changes again: what containerd calls a snapshotter. Metadata are in a Holdfast file, so
// an operation costs the same whatever the number of snapshots; how trees are kept
// is a Driver's business.
//
// Open opens a Store, Store.Tenant gives a set of names in it. See docs/worker.md for what
// is on the disk, what always holds, and what a crash leaves.
package snapshot
