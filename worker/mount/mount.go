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
