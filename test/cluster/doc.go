// Package cluster runs etcd on Holdfast: several members under load on this machine, while they are killed, paused, filled, replaced,
// and moved from one engine to the other. Raft replicates the file: whatever happens to one member, no write that etcd acknowledged may
// be lost, every history of reads and writes must be linearizable, and all members must have the same keys in the end.
//
// A Cluster starts and stops members. A load calls them as clients do, and records what they answered. Run makes things go wrong, by a
// seed, and judges at the end.
package cluster
