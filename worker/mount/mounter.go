package mount

import "context"

// Mounter mounts what the kernel cannot be asked for: file systems of a server that mounts them
// itself, at a place of its own. A Manager is given one for a type in Options.Mounters. It is
// called by several goroutines at once.
type Mounter interface {
	// Mount mounts m, or shares what it has mounted, and returns where that shows in the
	// mount namespace of the process, and a function that gives it back. It is always mounted
	// to be written: the caller makes a clone or bind of it that has the options of m, which
	// can be "ro" and "rw" only.
	//
	// release unmounts when it is the last. If it fails, as when somebody is in the directory,
	// nothing has changed and it can be called again; after a success it does nothing.
	Mount(ctx context.Context, m Mount) (path string, release func() error, err error)
}
