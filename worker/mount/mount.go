// Package mount is the one place that mounts file systems, and the one that takes them
// away. Nothing is mounted because it exists, only because somebody holds it:
// [Manager.Acquire] mounts, or shares what is mounted already, and [Handle.Release] gives
// it back.
//
// A mount is held as a descriptor, and attached to a path only where a program needs one.
// docs/worker.md, section Mounts, says what always holds and what a killed process leaves.
package mount

// Mount says what to mount, not where. The fields mean what they mean to containerd.
type Mount struct {
	// Type is the type of the file system, as in /proc/filesystems, or "bind".
	Type string

	// Source is what is mounted: a directory for "bind", a file or device for most
	// types; overlay and tmpfs have none.
	Source string

	// Options are those of mount(8), one in each element: "ro", "lowerdir=/a:/b".
	Options []string
}
