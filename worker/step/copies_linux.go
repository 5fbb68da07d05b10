package step

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"

	"github.com/moby/sys/userns"
	"golang.org/x/sys/unix"

	"holdfast/worker/internal/fstree"
	"holdfast/worker/internal/idmap"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// runtimeKey is what of the runtime changes results. In a user namespace users and devices are others; in one of the
// step's own the machine's root is the user 65534.
func (w *way) runtimeKey(ids idmap.Map) string {
	key := w.name
	if ids.Set() {
		key += " mapped"
	}
	if userns.RunningInUserNS() {
		key += " userns"
	}
	return key
}

// copyIn copies into the root of a step what it is to find there. Nothing of the step runs yet.
func (r *Runner) copyIn(f *flight, root *mount.Handle, ids idmap.Map) error {
	for i := range f.plan.copies {
		s, target := &f.plan.copies[i], f.plan.targets[i]
		if err := copyOne(f.ctx, s, root.FD(), target, ids); err != nil {
			return r.fault(f, fmt.Errorf("copy of %s to %s: %w", s.path, target, err))
		}
	}
	return nil
}

// copyOne copies a source, if what is at its path is what the step's ID says.
func copyOne(ctx context.Context, s *source, root int, target string, ids idmap.Map) error {
	from, err := fstree.OpenSource(s.path)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := as(ids, func() error { return placeIn(ctx, s, from, root, target, ids) }); err != nil {
		return err
	}
	changed, err := s.changed(ctx, from) // of the same that was copied, also if the path leads elsewhere by now
	if changed {
		err = fmt.Errorf("%w; run the step again", fstree.ErrChanged)
	}
	return err
}

// as runs a function that makes files in the root of a step, whose root those belong to.
func as(ids idmap.Map, do func() error) error {
	if !ids.Set() {
		return do()
	}
	return ids.Do(do)
}

// placeIn copies a source that is open to a path below a root, all of whose links stay in it.
func placeIn(ctx context.Context, s *source, from *os.File, root int, target string, ids idmap.Map) error {
	o := fstree.PlaceOptions{Root: true, RootID: ids.Base}
	if s.dir { // it is the directory at the target itself, and a link there may lead to it
		at, err := openDir(root, target)
		if err != nil {
			return err
		}
		defer at.Close()
		return fstree.PlaceContent(ctx, from, at, o)
	}
	dir, err := openDir(root, path.Dir(target))
	if err != nil {
		return err
	}
	defer dir.Close()
	return fstree.Place(ctx, from, dir, path.Base(target), o)
}

// inRoot opens a path below a root.
func inRoot(root int, name string, flags int) (*os.File, error) {
	fd, err := openIn(root, name, flags)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openDir opens a directory below a root, and makes what is missing of its path.
func openDir(root int, name string) (*os.File, error) {
	f, err := inRoot(root, name, unix.O_PATH|unix.O_DIRECTORY)
	if !errors.Is(err, os.ErrNotExist) || name == "/" {
		return f, err
	}
	above, err := openDir(root, path.Dir(name))
	if err != nil {
		return nil, err
	}
	defer above.Close()
	if err := unix.Mkdirat(int(above.Fd()), path.Base(name), 0o755); err != nil && err != unix.EEXIST {
		return nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return inRoot(root, name, unix.O_PATH|unix.O_DIRECTORY)
}

// duplicate is another descriptor of a file.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// CachePrefix begins the names of the active snapshots that are caches.
const CachePrefix = "!cache/"

// acquireCache mounts a cache, which is made if it is not there, and holds it until release: it is not removed meanwhile.
func (r *Runner) acquireCache(ctx context.Context, m *Mount, ids idmap.Map) (h *mount.Handle, release func(), err error) {
	for try := 0; ; try++ {
		release, err = r.holdCache(ctx, CachePrefix+m.Cache)
		if errors.Is(err, snapshot.ErrNotFound) && try < holdTries { // it was removed just now
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if h, err = r.mountCache(ctx, m, ids); err != nil {
			release()
			return nil, nil, err
		}
		return h, release, nil
	}
}

// holdTries is how often a cache can be removed between being made and held.
const holdTries = 10

// holdCache holds a cache, which is made if it is not there.
func (r *Runner) holdCache(ctx context.Context, name string) (release func(), err error) {
	t := r.opt.Namespace
	_, err = t.Mounts(ctx, name)
	if errors.Is(err, snapshot.ErrMissing) { // the machine went down soon after it was made
		err = errors.Join(t.Remove(ctx, name), snapshot.ErrNotFound)
	}
	if errors.Is(err, snapshot.ErrNotFound) {
		_, err = t.Prepare(ctx, name, "", snapshot.WithLabels(map[string]string{labelFresh: "true"}))
	}
	if err != nil && !errors.Is(err, snapshot.ErrExists) {
		return nil, err
	}
	return t.Hold(ctx, name)
}

// mountCache mounts a cache that is held.
func (r *Runner) mountCache(ctx context.Context, m *Mount, ids idmap.Map) (*mount.Handle, error) {
	t, name := r.opt.Namespace, CachePrefix+m.Cache
	mounts, err := t.Mounts(ctx, name)
	var info snapshot.Info
	if err == nil {
		info, err = t.Stat(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	spec, err := mount.FromMounts(mounts)
	if err != nil {
		return nil, err
	}
	spec.Options = append(slices.Clone(spec.Options), "nosuid", "nodev")
	fresh := info.Labels[labelFresh] != ""
	if m.ReadOnly && !fresh {
		spec.Options = append(spec.Options, "ro")
	}
	h, err := r.acquireMapped(ctx, spec, ids)
	if err != nil || !fresh {
		return h, err
	}
	if err = r.openCache(ctx, info, h.Path()); err == nil && !m.ReadOnly {
		return h, nil
	}
	h.Release()
	if err != nil {
		return nil, err
	}
	spec.Options = append(spec.Options, "ro")
	return r.acquireMapped(ctx, spec, ids)
}

// labelFresh is on a cache that not all users can write yet. What made it can have ended, or failed, before they could.
const labelFresh = "holdfast.cache.fresh"

// openCache lets all users write to a cache, as to a tmpfs. It is done before a step has it, by each that finds it
// fresh.
func (r *Runner) openCache(ctx context.Context, info snapshot.Info, path string) error {
	if err := os.Chmod(path, 0o777|os.ModeSticky); err != nil {
		return err
	}
	info.Labels = maps.Clone(info.Labels)
	delete(info.Labels, labelFresh)
	_, err := r.opt.Namespace.Update(ctx, info, "labels")
	return err
}
