// Package mount is the one place that mounts file systems and unmounts them. Mounts are made
// on demand: what no caller uses is not mounted.
//
// # A mount and its end
//
// Open returns a Manager, and ends what an earlier run that was killed has left:
//
//	manager, err := mount.Open(ctx, mount.Options{Keep: []string{"/var/lib/holdfast"}})
//
// A Spec says what to mount, not where. FromMounts makes one of what a snapshot returns. Acquire
// mounts it, or shares what is mounted already, and returns a Handle:
//
//	spec, err := mount.FromMounts(mounts)
//	h, err := manager.Acquire(ctx, spec)
//
// The mount is a descriptor, h.FD, attached nowhere. h.Path names it for this process. A program
// that needs a path gets one, on the host or in the step namespace, a small mount namespace in
// which programs start as fast on a host with tens of thousands of mounts as on an empty one:
//
//	path, err := h.Attach(manager.Host(), "/mnt")
//
// Release gives it back, and never waits. A shared mount stays, idle, for the next caller. One that
// could be written is unmounted in the background, again and again if it is still in use; Wait
// waits for that:
//
//	h.Release()
//	err = h.Wait(ctx)
//
// docs/worker/mounts.md says which features of the kernel are used and what is done without them,
// docs/worker/internals.md what always holds (M1 to M8) and how a killed process is cleaned up.
package mount
