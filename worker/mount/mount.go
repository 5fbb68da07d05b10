// Package mount describes mounts and makes them.
package mount

// Mount says what to mount, not where. The fields mean what they mean in containerd's
// mount.Mount: a list of them is mounted in order, on one target.
type Mount struct {
	// Type is a file system type as in /proc/filesystems, or "bind".
	Type string

	// Source is a device, a directory for "bind", or any word where the type needs none.
	Source string

	// Options are as in fstab: "ro", "rbind", "lowerdir=...".
	Options []string
}
