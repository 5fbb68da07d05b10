package image

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"holdfast/worker/mount"
)

// openTree gives the tree that mounts of a prepared snapshot show, and the directory it is in. It goes to the
// directories that are mounted, so only lower layers that are images need a manager.
func openTree(ctx context.Context, mounts []mount.Mount, parent bool, m *mount.Manager, left *LeftOut, b *budget) (*tree, string, error) {
	last := mounts[len(mounts)-1]
	switch last.Type {
	case "bind":
		t, err := newTree(last.Source, false, parent, nil, left, b)
		return t, last.Source, err
	case "overlay":
		return openOverlay(ctx, mounts, m, left, b)
	}
	spec, err := mount.FromMounts(mounts)
	if err != nil {
		return nil, "", err
	}
	path, end, err := acquire(ctx, spec, m)
	if err != nil {
		return nil, "", err
	}
	t, err := newTree(path, false, parent, nil, left, b)
	if err != nil {
		end()
		return nil, "", err
	}
	t.ends = append(t.ends, end)
	return t, path, nil
}

func openOverlay(ctx context.Context, mounts []mount.Mount, m *mount.Manager, left *LeftOut, b *budget) (*tree, string, error) {
	last := mounts[len(mounts)-1]
	upper, dirs, marks := "", []string(nil), trustedMarks
	for _, o := range last.Options {
		switch key, value, _ := strings.Cut(o, "="); key {
		case "upperdir":
			upper = value
		case "lowerdir":
			dirs = strings.Split(value, ":")
		case "userxattr":
			marks = userMarks
		}
	}
	if upper == "" {
		return nil, "", errors.New("the snapshot cannot be written")
	}
	lower := &stack{marks: []string{marks}}
	if marks == trustedMarks { // an unprivileged user sees and makes no others
		lower.marks = append(lower.marks, userMarks)
	}
	for _, one := range mounts[:len(mounts)-1] {
		path, end, err := acquire(ctx, mount.Spec{Mount: one}, m)
		if err == nil {
			lower.ends = append(lower.ends, end)
			err = lower.add(path)
		}
		if err != nil {
			lower.close()
			return nil, "", err
		}
	}
	for _, dir := range dirs {
		if err := lower.add(dir); err != nil {
			lower.close()
			return nil, "", err
		}
	}
	t, err := newTree(upper, true, false, lower, left, b)
	if err != nil {
		lower.close()
		return nil, "", err
	}
	t.marks = marks
	return t, upper, nil
}

func acquire(ctx context.Context, spec mount.Spec, m *mount.Manager) (path string, end func(), err error) {
	if m == nil {
		return "", nil, fmt.Errorf("a %s has to be mounted to be looked at, and cannot be mounted here: %w", spec.Type, errors.ErrUnsupported)
	}
	h, err := m.Acquire(ctx, spec)
	if err != nil {
		return "", nil, err
	}
	return h.Path() + "/.", h.Release, nil
}
