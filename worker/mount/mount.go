package mount

import "context"

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

// Mounter mounts what the kernel cannot be asked for: file systems of a server that mounts them
// itself, at a place of its own. A Manager is given one for a type in Options.Mounters. It is
// called by several goroutines at once.
type Mounter interface {
	// Mount mounts m, or shares what it has mounted, and returns where that shows in the
	// mount namespace of the process, and a function that gives it back. It is always mounted
	// to be written: the caller makes a clone or bind of it that has the options of m, which
	// can be "ro" and "rw" only.
	//
	// release unmounts when it is the last. If it fails, as when a process is in the directory,
	// nothing has changed and it can be called again; after a success it does nothing.
	Mount(ctx context.Context, m Mount) (path string, release func() error, err error)
}
