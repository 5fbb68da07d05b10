// Package erofs is the driver that keeps each committed snapshot as one file, an EROFS image, and stacks them with
// overlayfs. It uses the command mkfs.erofs (Debian: erofs-utils).
//
// A commit leaves a directory, as the driver overlay does; the image is made after it, in the background or when the
// first child is prepared, whichever comes first. So no mount ever has that directory as a lower layer, and it is
// deleted when the image is on the disk. A mount of the active snapshot that is still there then loses its files.
//
// The tree is what commands have made, so mkfs.erofs runs confined (package confine). If it can make no image of it, as
// of a tree whose paths are too long, the layer stays a directory for good, and is stacked as one.
package erofs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"holdfast/worker/internal/fstree"
	"holdfast/worker/internal/keylock"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/overlay"
)

// Driver keeps what a snapshot changes in DIR/fs, with overlayfs's scratch space in DIR/work, and after
// the commit in the image DIR/layer.erofs; or, if that cannot be made, in DIR/fs, with the reason in DIR/no-image.
type Driver struct {
	overlay overlay.Driver
	options []string
	making  keylock.Locks[snapshot.ID] // images that are being made
}

// New gives the driver. Its mounts of images have the further options given, such as "loop".
func New(options ...string) *Driver {
	return &Driver{options: append([]string{"ro"}, options...)}
}

// Name is "erofs".
func (*Driver) Name() string { return "erofs" }

// Rebase marks that a snapshot is changes only.
func (*Driver) Rebase() {}

func changes(dir string) string { return filepath.Join(dir, "fs") }
func scratch(dir string) string { return filepath.Join(dir, "work") }
func image(dir string) string   { return filepath.Join(dir, "layer.erofs") }
func noImage(dir string) string { return filepath.Join(dir, "no-image") }

// isTree tells whether a layer stays a directory.
func isTree(dir string) bool {
	_, err := os.Lstat(noImage(dir))
	return err == nil
}

const helper = "mkfs.erofs"

// missing says where the helper is to be had.
func missing(err error) error {
	return fmt.Errorf("the command %s is missing; Debian has it in erofs-utils: %w", helper, err)
}

// Keeps tells of the directory in which a Probe that was killed has tried.
func (d *Driver) Keeps(name string) bool { return d.overlay.Keeps(name) }

// Probe looks whether the file system of root can hold layers, and whether the command is there.
func (d *Driver) Probe(root string) error {
	if _, err := exec.LookPath(helper); err != nil {
		return fmt.Errorf("%w (%w)", missing(err), snapshot.ErrUnsupported)
	}
	return d.overlay.Probe(root)
}

// Create makes the images of the parents, where they are not made yet, and the directories of an
// overlay.
func (d *Driver) Create(ctx context.Context, t snapshot.Tree) error {
	if len(t.Parents) > overlay.MaxLayers {
		return d.overlay.Create(ctx, t) // it says so
	}
	for _, p := range t.Parents {
		if err := d.prepare(ctx, p); err != nil {
			return err
		}
	}
	if t.Kind == snapshot.View || len(t.Parents) == 0 {
		return d.overlay.Create(ctx, t)
	}
	alone := t
	alone.Parents = nil
	if err := d.overlay.Create(ctx, alone); err != nil {
		return err
	}
	// The root of an overlay is that of its upper directory. A copy of the parent's was kept.
	return fstree.CopyAttributes(rootOf(t.Parents[0].Dir), changes(t.Dir))
}

// rootOf is an empty directory with the attributes of the root of a layer, for which else an image
// would have to be mounted.
func rootOf(dir string) string { return filepath.Join(dir, "root") }

// Commit has nothing to do.
func (*Driver) Commit(context.Context, snapshot.Tree) error { return nil }

// Mounts is an overlay on mounted images: the last of the mounts is the overlay, those before it are its
// lower layers, the topmost first. Where there is only one layer it is that.
func (d *Driver) Mounts(ctx context.Context, t snapshot.Tree, readonly bool) ([]mount.Mount, error) {
	if len(t.Parents) == 0 {
		return d.overlay.Mounts(ctx, t, readonly)
	}
	var mounts []mount.Mount
	for _, p := range t.Parents {
		if isTree(p.Dir) {
			mounts = append(mounts, mount.Mount{Type: "bind", Source: changes(p.Dir), Options: []string{"rbind", "ro"}})
			continue
		}
		mounts = append(mounts, mount.Mount{Type: "erofs", Source: image(p.Dir), Options: d.options})
	}
	top := mount.Mount{Type: "overlay", Source: "overlay"}
	switch {
	case t.Kind == snapshot.View:
		if len(mounts) == 1 {
			return mounts, nil
		}
	default:
		top.Options = []string{"workdir=" + scratch(t.Dir), "upperdir=" + changes(t.Dir)}
		if readonly {
			top.Options = append(top.Options, "ro")
		}
	}
	return append(mounts, top), nil
}

// Usage measures what the snapshot changes, or its image.
func (d *Driver) Usage(ctx context.Context, t snapshot.Tree) (snapshot.Usage, error) {
	if d.Finished(t.Layer) {
		u, err := fstree.Measure(ctx, t.Dir)
		return snapshot.Usage(u), err
	}
	return d.overlay.Usage(ctx, t)
}

// Digest is the SHA-256 of the image, as sha256sum gives it; or of the tree, if the layer stays one.
func (*Driver) Digest(ctx context.Context, l snapshot.Layer, o snapshot.DigestOptions) (snapshot.Digest, error) {
	if isTree(l.Dir) {
		sum, err := fstree.Digest(ctx, changes(l.Dir), fstree.DigestOptions(o))
		return sum, err
	}
	sum, err := fstree.DigestFile(ctx, image(l.Dir), fstree.DigestOptions(o))
	return sum, err
}

// Remove has nothing to do: it is all in the directory.
func (*Driver) Remove(context.Context, snapshot.Layer) error { return nil }

// Finished tells whether the image is there, and nothing else any more, or the layer stays a directory.
func (*Driver) Finished(l snapshot.Layer) bool {
	if isTree(l.Dir) {
		return true
	}
	for _, gone := range []string{changes(l.Dir), scratch(l.Dir)} {
		if _, err := os.Lstat(gone); !errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	_, err := os.Lstat(image(l.Dir))
	return err == nil
}

// Finish makes the image, and deletes what it was made of; of several calls for one layer the first works and the others wait.
func (d *Driver) Finish(ctx context.Context, l snapshot.Layer) error {
	if d.Finished(l) {
		return nil
	}
	unlock, err := d.making.Lock(ctx, l.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if d.Finished(l) {
		return nil
	}
	if err := ensureImage(ctx, l.Dir); err != nil || isTree(l.Dir) {
		return err
	}
	if err := fstree.Flush(l.Dir); err != nil { // a process that was killed may have named the image, and not flushed that
		return err
	}
	for _, dir := range []string{changes(l.Dir), scratch(l.Dir)} {
		if err := fstree.Remove(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// prepare sees to it that a layer can be stacked. What its image was made of is deleted later, by Finish.
func (d *Driver) prepare(ctx context.Context, l snapshot.Layer) error {
	if stackable(l.Dir) {
		return nil
	}
	unlock, err := d.making.Lock(ctx, l.ID)
	if err != nil {
		return err
	}
	defer unlock()
	return ensureImage(ctx, l.Dir)
}

// stackable tells whether a layer has its image, or stays a directory.
func stackable(dir string) bool {
	_, err := os.Lstat(image(dir))
	return err == nil || isTree(dir)
}

// ensureImage makes the image of a layer, which has its name only when it is on the disk, or has the layer stay a directory.
func ensureImage(ctx context.Context, dir string) error {
	if stackable(dir) {
		return nil
	}
	err := makeImage(ctx, dir)
	if refused := (*refusedError)(nil); errors.As(err, &refused) {
		return stayTree(ctx, dir, refused)
	}
	return err
}
