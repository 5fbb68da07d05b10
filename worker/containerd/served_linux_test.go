package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"

	"holdfast/worker/containerd"
	"holdfast/worker/internal/testing/zfsfuse"
	ours "holdfast/worker/mount"
	"holdfast/worker/snapshot/driver/zfs"
)

// served is a Snapshotter whose mounts of the type zfs the kernel does not know. They are mounted when containerd is
// told of them, it binds them, and they go when it commits or removes the snapshot: it does not tell when it unmounts.
type served struct {
	*containerd.Snapshotter
	by *zfsfuse.Mounter

	mu   sync.Mutex
	held map[string]holding // by the key of the snapshot
}

type holding struct {
	path    string
	release func() error
}

func (s *served) Prepare(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	mounts, err := s.Snapshotter.Prepare(ctx, key, parent, opts...)
	return s.show(ctx, key, mounts, err)
}

func (s *served) View(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	mounts, err := s.Snapshotter.View(ctx, key, parent, opts...)
	return s.show(ctx, key, mounts, err)
}

func (s *served) Mounts(ctx context.Context, key string) ([]mount.Mount, error) {
	mounts, err := s.Snapshotter.Mounts(ctx, key)
	return s.show(ctx, key, mounts, err)
}

func (s *served) Commit(ctx context.Context, name, key string, opts ...snapshots.Opt) error {
	if err := s.hide(key); err != nil {
		return err
	}
	return s.Snapshotter.Commit(ctx, name, key, opts...)
}

func (s *served) Remove(ctx context.Context, key string) error {
	if err := s.hide(key); err != nil {
		return err
	}
	return s.Snapshotter.Remove(ctx, key)
}

func (s *served) Close() error {
	var errs []error
	for key := range s.held {
		errs = append(errs, s.hide(key))
	}
	return errors.Join(append(errs, s.Snapshotter.Close())...)
}

// show turns a mount of the type zfs into a bind of where it is mounted.
func (s *served) show(ctx context.Context, key string, mounts []mount.Mount, err error) ([]mount.Mount, error) {
	if err != nil {
		return nil, err
	}
	if len(mounts) != 1 || mounts[0].Type != zfs.Type {
		return nil, fmt.Errorf("mounts of the driver zfs: %+v", mounts)
	}
	m := mounts[0]
	path, release, err := s.by.Mount(ctx, ours.Mount{Type: m.Type, Source: m.Source, Options: m.Options})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	_, twice := s.held[key]
	if !twice {
		s.held[key] = holding{path, release}
	}
	s.mu.Unlock()
	if twice {
		if err := release(); err != nil {
			return nil, err
		}
	}
	return []mount.Mount{{Type: "bind", Source: path, Options: slices.Concat([]string{"rbind"}, m.Options)}}, nil
}

// hide unmounts what was shown of a snapshot. That fails if a file in it is open; a bind mount of it does not matter.
func (s *served) hide(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.held[key]
	if !ok {
		return nil
	}
	if err := h.release(); err != nil {
		return fmt.Errorf("snapshot %q at %s: %w", key, h.path, err)
	}
	delete(s.held, key)
	return nil
}
