package step

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/fstree"
	"holdfast/worker/mount"
)

// This file takes things out of committed snapshots. They are mounted for it, read-only; symbolic links in them lead
// nowhere else.

// exportPrefix begins the names of views that are made to copy something out of a result. They come after those of
// runs.
const exportPrefix = RunPrefix + "out/"

// Export copies a file or directory of a committed snapshot, such as a result, to the host: a directory's content
// into the directory dest, besides what it has; a file to dest, or into it if that is a directory or ends with /.
// What it makes belongs to the process, and has neither set-user-ID nor extended attributes. Symbolic links are
// copied as they are; the one at source is followed within the snapshot. Nothing is copied into the store, nor in the
// place of a device, FIFO or socket: see CheckOutput.
func (r *Runner) Export(ctx context.Context, name, source, dest string) error {
	if err := r.export(ctx, name, source, dest); err != nil {
		return fmt.Errorf("step: output %s of %s: %w", source, name, err)
	}
	return nil
}

func (r *Runner) export(ctx context.Context, name, source, dest string) error {
	near, err := r.surroundings()
	if err == nil {
		err = near.checkOutput(dest) // again: the step can have changed where it leads
	}
	if err != nil {
		return err
	}
	return r.view(ctx, name, func(root int) error {
		err := exportFrom(ctx, root, source, dest, fstree.PlaceOptions{Spare: near.root})
		if errors.Is(err, fstree.ErrSpared) {
			err = fmt.Errorf("%s has the store %s, into which some of the output would go: %w", dest, near.store, errIntoStore)
		}
		return err
	})
}

// ExportTar writes a file or directory of a committed snapshot as an archive, with its last name, owners, set-user-ID
// and extended attributes. The symbolic link at source is followed within the snapshot.
func (r *Runner) ExportTar(ctx context.Context, name, source string, w io.Writer) error {
	err := r.view(ctx, name, func(root int) error {
		from, err := inRoot(root, source, unix.O_PATH)
		if err != nil {
			return err
		}
		defer from.Close()
		as := path.Base(path.Clean(source))
		if as == "/" {
			as = "."
		}
		t := tar.NewWriter(w)
		if err := fstree.Tar(ctx, from, as, t); err != nil {
			return err
		}
		return t.Close()
	})
	if err != nil {
		return fmt.Errorf("step: archive of %s of %s: %w", source, name, err)
	}
	return nil
}

// Diff calls each for what a committed snapshot has changed of another, in the order of the names; "" is an empty one.
// Its error ends the comparison, and is returned.
func (r *Runner) Diff(ctx context.Context, before, after string, each func(Change) error) error {
	compare := func(was string) error {
		return r.view(ctx, after, func(root int) error { return changes(ctx, was, pathOf(root), each) })
	}
	var err error
	if before == "" {
		err = compare("")
	} else {
		err = r.view(ctx, before, func(root int) error { return compare(pathOf(root)) })
	}
	if err != nil {
		return fmt.Errorf("step: comparing %s with %s: %w", after, before, err)
	}
	return nil
}

// pathOf is a path of the directory that a descriptor is of.
func pathOf(fd int) string { return fmt.Sprintf("/proc/self/fd/%d/.", fd) }

// view calls do with the root of a committed snapshot.
func (r *Runner) view(ctx context.Context, name string, do func(root int) error) (err error) {
	key := fmt.Sprintf("%s%d", exportPrefix, r.serial.Add(1))
	mounts, err := r.opt.Namespace.View(ctx, key, name)
	if err != nil {
		return err
	}
	after := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, r.opt.Namespace.Remove(after, key)) }()
	view, err := r.opt.Namespace.Stat(ctx, key)
	if err != nil {
		return err
	}
	spec, err := mount.FromMounts(mounts)
	if err != nil {
		return err
	}
	h, err := r.opt.Mounts.Acquire(ctx, spec)
	if err != nil {
		return err
	}
	err = do(h.FD())
	h.Release()
	// What is kept for the next time must not stand on the directory of the view, which goes.
	own := filepath.Join(r.store.Root(), "snapshots", view.ID.String())
	return errors.Join(err, h.Wait(after), r.opt.Mounts.Forget(after, own))
}

func exportFrom(ctx context.Context, root int, source, dest string, o fstree.PlaceOptions) error {
	from, err := inRoot(root, source, unix.O_PATH)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	into := strings.HasSuffix(dest, "/")
	if there, err := os.Stat(dest); err == nil {
		into = into || there.IsDir()
		if info.IsDir() && !there.IsDir() {
			return fmt.Errorf("%w: %s is a directory, and %s is none: give a directory, or the path of nothing yet", ErrInvalid, source, dest)
		}
	}
	dest = filepath.Clean(dest)
	if into && !info.IsDir() {
		dest = filepath.Join(dest, path.Base(path.Clean(source)))
		if err := replaceable(dest); err != nil {
			return err
		}
	}
	above := dest
	if !info.IsDir() {
		above = filepath.Dir(dest)
	}
	if err := os.MkdirAll(above, 0o777); err != nil {
		return err
	}
	dir, err := os.Open(above)
	if err != nil {
		return err
	}
	defer dir.Close()
	if info.IsDir() {
		return fstree.PlaceContent(ctx, from, dir, o)
	}
	return fstree.Place(ctx, from, dir, filepath.Base(dest), o)
}
