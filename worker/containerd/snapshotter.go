package containerd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/filters"
	"github.com/containerd/errdefs"

	ours "holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// Snapshotter is a namespace with containerd's methods. Its errors are those of package snapshot
// and of containerd's errdefs at once.
type Snapshotter struct{ namespace *snapshot.Namespace }

var (
	_ snapshots.Snapshotter = (*Snapshotter)(nil)
	_ snapshots.Cleaner     = (*Snapshotter)(nil)
)

// New shows a namespace, which ought to be a client (Store.ClientNamespace): containerd does not expect a
// snapshot to go that it has not removed.
func New(t *snapshot.Namespace) *Snapshotter {
	return &Snapshotter{namespace: t}
}

// Stat implements snapshots.Snapshotter, as all methods do.
func (s *Snapshotter) Stat(ctx context.Context, key string) (snapshots.Info, error) {
	info, err := s.namespace.Stat(ctx, key)
	return infoOf(info), classed(err)
}

func (s *Snapshotter) Update(ctx context.Context, info snapshots.Info, fields ...string) (snapshots.Info, error) {
	updated, err := s.namespace.Update(ctx, snapshot.Info{Name: info.Name, Labels: info.Labels}, fields...)
	return infoOf(updated), classed(err)
}

func (s *Snapshotter) Usage(ctx context.Context, key string) (snapshots.Usage, error) {
	u, err := s.namespace.Usage(ctx, key)
	return snapshots.Usage{Size: u.Size, Inodes: u.Inodes}, classed(err)
}

func (s *Snapshotter) Mounts(ctx context.Context, key string) ([]mount.Mount, error) {
	mounts, err := s.namespace.Mounts(ctx, key)
	return mountsOf(mounts), classed(err)
}

func (s *Snapshotter) Prepare(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	options, err := optionsOf(opts)
	if err != nil {
		return nil, err
	}
	mounts, err := s.namespace.Prepare(ctx, key, parent, options...)
	return mountsOf(mounts), classed(err)
}

func (s *Snapshotter) View(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	options, err := optionsOf(opts)
	if err != nil {
		return nil, err
	}
	mounts, err := s.namespace.View(ctx, key, parent, options...)
	return mountsOf(mounts), classed(err)
}

func (s *Snapshotter) Commit(ctx context.Context, name, key string, opts ...snapshots.Opt) error {
	options, err := optionsOf(opts)
	if err != nil {
		return err
	}
	return classed(s.namespace.Commit(ctx, name, key, options...))
}

func (s *Snapshotter) Remove(ctx context.Context, key string) error {
	return classed(s.namespace.Remove(ctx, key))
}

func (s *Snapshotter) Walk(ctx context.Context, fn snapshots.WalkFunc, fs ...string) error {
	filter, err := filters.ParseAll(fs...)
	if err != nil {
		return err
	}
	return classed(s.namespace.Walk(ctx, func(info snapshot.Info) error {
		theirs := infoOf(info)
		if !filter.Match(fields(theirs)) {
			return nil
		}
		return fn(ctx, theirs)
	}))
}

// Cleanup returns when what was removed is deleted.
func (s *Snapshotter) Cleanup(ctx context.Context) error {
	return classed(s.namespace.Store().Cleanup(ctx))
}

// Close does nothing. The Store is its owner's.
func (s *Snapshotter) Close() error { return nil }

// kinds have the same numbers in both.
func infoOf(i snapshot.Info) snapshots.Info {
	return snapshots.Info{Kind: snapshots.Kind(i.Kind), Name: i.Name, Parent: i.Parent, Labels: i.Labels,
		Created: i.Created, Updated: i.Updated}
}

// mountsOf gives an overlay with lower layers that are mounted as containerd's mount manager wants it.
func mountsOf(list []ours.Mount) []mount.Mount {
	if list == nil {
		return nil
	}
	mounts := make([]mount.Mount, len(list))
	for i, m := range ours.Templated(list) {
		mounts[i] = mount.Mount{Type: m.Type, Source: m.Source, Options: m.Options}
	}
	return mounts
}

func optionsOf(opts []snapshots.Opt) ([]snapshot.Option, error) {
	var base snapshots.Info
	for _, o := range opts {
		if err := o(&base); err != nil {
			return nil, err
		}
	}
	options := []snapshot.Option{snapshot.WithLabels(base.Labels)}
	if base.Parent != "" {
		options = append(options, snapshot.WithParent(base.Parent))
	}
	return options, nil
}

// fields are what a filter can ask of a snapshot.
func fields(info snapshots.Info) filters.Adaptor {
	return filters.AdapterFunc(func(path []string) (string, bool) {
		if len(path) == 0 {
			return "", false
		}
		switch path[0] {
		case "kind":
			return strings.ToLower(info.Kind.String()), true
		case "name":
			return info.Name, true
		case "parent":
			return info.Parent, true
		case "labels":
			v, ok := info.Labels[strings.Join(path[1:], ".")]
			return v, ok
		}
		return "", false
	})
}

// classes says which of containerd's errors is which of ours.
var classes = []struct{ ours, theirs error }{
	{snapshot.ErrNotFound, errdefs.ErrNotFound},
	{snapshot.ErrExists, errdefs.ErrAlreadyExists},
	{snapshot.ErrInvalid, errdefs.ErrInvalidArgument},
	{snapshot.ErrKind, errdefs.ErrFailedPrecondition},
	{snapshot.ErrInUse, errdefs.ErrFailedPrecondition},
	{snapshot.ErrUnsupported, errdefs.ErrNotImplemented},
	{snapshot.ErrDistrusted, errdefs.ErrDataLoss},
	{snapshot.ErrDamaged, errdefs.ErrDataLoss},
	{snapshot.ErrSuspect, errdefs.ErrDataLoss},
	{snapshot.ErrMissing, errdefs.ErrDataLoss},
	{snapshot.ErrCorrupt, errdefs.ErrDataLoss},
	{snapshot.ErrClosed, errdefs.ErrUnavailable},
}

// classed adds to an error what containerd calls it.
func classed(err error) error {
	for _, c := range classes {
		if errors.Is(err, c.ours) {
			return fmt.Errorf("%w: %w", err, c.theirs)
		}
	}
	return err
}
