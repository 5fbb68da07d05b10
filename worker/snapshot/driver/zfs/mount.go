package zfs

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// point is where a dataset is mounted while somebody uses it.
type point struct {
	sync.Mutex
	refs int // also of those who wait for the lock, which keep it in the map
	held int // of those who have it mounted
}

// enter locks the point of a snapshot; leave unlocks it.
func (d *Driver) enter(id snapshot.ID) *point {
	d.mu.Lock()
	p := d.points[id]
	if p == nil {
		p = &point{}
		d.points[id] = p
	}
	p.refs++
	d.mu.Unlock()
	p.Lock()
	return p
}

func (d *Driver) leave(id snapshot.ID, p *point) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.refs--
	if p.refs == 0 && p.held == 0 {
		delete(d.points, id)
	}
	p.Unlock()
}

// Mount mounts a dataset of the type TypeFuse at ROOT/mounted/sID, as mount.Mounter says.
func (d *Driver) Mount(ctx context.Context, m mount.Mount) (string, func() error, error) {
	if m.Type != TypeFuse || d.zfs == nil || !d.zfs.fuse {
		return "", nil, fmt.Errorf("a mount of type %q by the driver zfs: %w", m.Type, errors.ErrUnsupported)
	}
	id, err := d.idOf(m.Source)
	if err != nil {
		return "", nil, err
	}
	return d.hold(ctx, id)
}

func (d *Driver) hold(ctx context.Context, id snapshot.ID) (string, func() error, error) {
	p := d.enter(id)
	defer d.leave(id, p)
	path := d.pointOf(id)
	if p.held == 0 {
		if err := d.mountPoint(ctx, id); err != nil {
			return "", nil, err
		}
	}
	p.held++
	released := false
	return path, func() error {
		p := d.enter(id)
		defer d.leave(id, p)
		if released {
			return nil
		}
		if p.held == 1 {
			if err := unmountPoint(path); err != nil {
				return err
			}
		}
		p.held--
		released = true
		return nil
	}, nil
}

// clearPoint unmounts a snapshot that is to be removed, if a process that was killed has left it mounted.
func (d *Driver) clearPoint(id snapshot.ID) error {
	p := d.enter(id)
	defer d.leave(id, p)
	if p.held > 0 {
		return fmt.Errorf("%s is mounted at %s: %w", d.name(id), d.pointOf(id), mount.ErrBusy)
	}
	if d.zfs.fuse {
		return unmountPoint(d.pointOf(id))
	}
	return nil
}

// objects is how many objects a dataset has.
func (d *Driver) objects(ctx context.Context, id snapshot.ID) (int64, error) {
	if !d.zfs.fuse {
		return d.zfs.countObjects(ctx, d.name(id))
	}
	path, release, err := d.hold(ctx, id)
	if err != nil {
		return 0, err
	}
	n, err := statObjects(path)
	return n, errors.Join(err, release())
}
