// Package zfs is the driver for OpenZFS: each snapshot of the store is a dataset, a clone of what its parent was when
// it was committed. Making one takes the same time whatever is in it.
//
// The driver runs the program zfs. It mounts nothing: datasets have mountpoint=legacy and canmount=noauto, and mounts
// are of the type "zfs" with the dataset as their source, as containerd knows them.
package zfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"holdfast/worker/internal/fstree"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// Type is the type of the mounts.
const Type = "zfs"

// Driver keeps the snapshot ID as the dataset DATASET/sID; a committed one is its ZFS snapshot
// DATASET/sID@c. It is for one Store at a time.
type Driver struct {
	dataset string

	root string
	zfs  *program
}

// New returns the driver that keeps everything below a dataset, such as "tank/holdfast". The pool must exist, and the
// dataset must not: the first Store makes it.
func New(dataset string) *Driver { return &Driver{dataset: dataset} }

// Name is "zfs".
func (*Driver) Name() string { return "zfs" }

// pattern is what a dataset below a pool may be called here; ZFS allows some more.
var pattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)+$`)

// maxDataset leaves room for the names below it: ZFS allows 255 bytes.
const maxDataset = 200

// name and origin are the only names below the dataset that the program is given.
func (d *Driver) name(id snapshot.ID) string { return d.dataset + "/s" + id.String() }

func (d *Driver) origin(id snapshot.ID) string { return d.name(id) + "@c" }

// Create makes a dataset. Its directory is on the disk before: a dataset without one would
// never be found to be an orphan.
func (d *Driver) Create(ctx context.Context, t snapshot.Tree) error {
	if err := errors.Join(fstree.Flush(t.Dir), fstree.Flush(filepath.Dir(t.Dir))); err != nil {
		return err
	}
	args := []string{"create", "-o", "canmount=noauto", d.name(t.ID)}
	if len(t.Parents) > 0 {
		args = []string{"clone", "-o", "canmount=noauto", d.origin(t.Parents[0].ID), d.name(t.ID)}
	}
	_, err := d.zfs.run(ctx, args...)
	return err
}

// Commit makes the ZFS snapshot. When that is made it is on the disk, with all that was written before.
func (d *Driver) Commit(ctx context.Context, t snapshot.Tree) error {
	_, err := d.zfs.run(ctx, "snapshot", d.origin(t.ID))
	if !errors.Is(err, errExists) {
		return err
	}
	// Of a commit that was not completed. If something had been cloned from it, it could not
	// be destroyed.
	if err := d.destroy(ctx, d.origin(t.ID)); err != nil {
		return err
	}
	_, err = d.zfs.run(ctx, "snapshot", d.origin(t.ID))
	return err
}

// Mounts is the dataset.
func (d *Driver) Mounts(_ context.Context, t snapshot.Tree, readonly bool) ([]mount.Mount, error) {
	option := "rw"
	if readonly {
		option = "ro"
	}
	return []mount.Mount{{Type: Type, Source: d.name(t.ID), Options: []string{option}}}, nil
}

// objectsName is a file in the directory of a snapshot: how many objects its dataset has.
const objectsName = "objects"

// Usage is what ZFS says: the bytes that would be free if the dataset were destroyed, of what was on the disk when ZFS
// has last counted, some seconds ago; and how many objects (files, directories, and some that ZFS
// has for itself) it has more than the parent had when that was committed.
func (d *Driver) Usage(ctx context.Context, t snapshot.Tree) (snapshot.Usage, error) {
	used, err := d.zfs.number(ctx, "used", d.name(t.ID))
	if err != nil {
		return snapshot.Usage{}, err
	}
	objects, err := d.zfs.objects(ctx, d.name(t.ID))
	if err != nil {
		return snapshot.Usage{}, err
	}
	if t.Kind != snapshot.View {
		err = os.WriteFile(filepath.Join(t.Dir, objectsName), strconv.AppendInt(nil, objects, 10), 0o600)
		if err != nil {
			return snapshot.Usage{}, err
		}
	}
	if len(t.Parents) > 0 {
		objects = max(0, objects-d.below(ctx, t.Parents[0]))
	}
	return snapshot.Usage{Size: used, Inodes: objects}, nil
}

// below is how many objects a committed layer has. If it was not measured yet, or that was lost, ZFS counts them; that it
// cannot is not a reason to fail.
func (d *Driver) below(ctx context.Context, l snapshot.Layer) int64 {
	b, _ := os.ReadFile(filepath.Join(l.Dir, objectsName))
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		n, _ = d.zfs.objects(ctx, d.name(l.ID))
	}
	return max(0, n)
}

// Remove destroys the dataset with its ZFS snapshot. Anything else that is found in it, as
// clones are, is an error: nothing is destroyed that the store has not removed.
func (d *Driver) Remove(ctx context.Context, l snapshot.Layer) error {
	if err := d.destroy(ctx, d.origin(l.ID)); err != nil {
		return err
	}
	return d.destroy(ctx, d.name(l.ID))
}

// destroy destroys what may be gone already.
func (d *Driver) destroy(ctx context.Context, name string) error {
	err := retry(ctx, func() error {
		_, err := d.zfs.run(ctx, "destroy", name)
		return err
	})
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// Sync flushes the Store's directories, and the pool if that is asked for all: the content of one
// that was committed is on the disk already.
func (d *Driver) Sync(ctx context.Context, t snapshot.Tree) error {
	if err := syncStore(d.root, t.Dir); err != nil {
		return err
	}
	if t.ID != 0 {
		return nil
	}
	return d.zfs.sync(ctx, d.dataset)
}
