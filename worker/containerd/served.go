package containerd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	ours "holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// served are the mounts that containerd cannot make, since a server makes them itself (ZFS by zfs-fuse). They
// are made when containerd is told of them, it binds them, and they go when it commits or removes the
// snapshot: it does not tell when it unmounts.
type served struct {
	by map[string]ours.Mounter

	mu   sync.Mutex
	held map[string]holding // by the key of the snapshot
}

type holding struct {
	path    string
	release func() error
}

func newServed(d snapshot.Driver) *served {
	s := &served{held: map[string]holding{}}
	if m, ok := d.(interface {
		Mounters() map[string]ours.Mounter
	}); ok {
		s.by = m.Mounters()
	}
	return s
}

// show turns mounts of the snapshot key that containerd cannot make into such that it can.
func (s *served) show(ctx context.Context, key string, mounts []ours.Mount) ([]ours.Mount, error) {
	if len(mounts) != 1 || s.by[mounts[0].Type] == nil {
		return mounts, nil
	}
	m := mounts[0]
	path, release, err := s.by[m.Type].Mount(ctx, m)
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
	return []ours.Mount{{Type: "bind", Source: path, Options: slices.Concat([]string{"rbind"}, m.Options)}}, nil
}

// hide unmounts what was shown of a snapshot. That fails if somebody is in it; a bind mount of it is no hindrance.
func (s *served) hide(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.held[key]
	if !ok {
		return nil
	}
	if err := h.release(); err != nil {
		return fmt.Errorf("snapshot %q at %s: %w: %w", key, h.path, snapshot.ErrInUse, err)
	}
	delete(s.held, key)
	return nil
}

func (s *served) hideAll() error {
	s.mu.Lock()
	keys := make([]string, 0, len(s.held))
	for key := range s.held {
		keys = append(keys, key)
	}
	s.mu.Unlock()
	var errs []error
	for _, key := range keys {
		errs = append(errs, s.hide(key))
	}
	return errors.Join(errs...)
}
