// Package btrfs is the driver for btrfs: each snapshot is a subvolume that shares what it has
// in common with its parent. Making one takes the same time whatever is in it. It uses the command
// btrfs (Debian: btrfs-progs).
package btrfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// Driver keeps each snapshot as a whole tree in the subvolume DIR/fs. Mounts and usage are as of
// the driver copy.
type Driver struct{ copy.Driver }

// New gives the driver.
func New() *Driver { return &Driver{} }

// Name is "btrfs".
func (*Driver) Name() string { return "btrfs" }

func subvolume(dir string) string { return filepath.Join(dir, "fs") }

// Create makes a subvolume. A view with a parent has nothing of its own.
func (d *Driver) Create(ctx context.Context, t snapshot.Tree) error {
	if t.Kind == snapshot.View && len(t.Parents) > 0 {
		return d.Driver.Create(ctx, t)
	}
	if len(t.Parents) > 0 {
		return run(ctx, "snapshot", subvolume(t.Parents[0].Dir), subvolume(t.Dir))
	}
	if err := run(ctx, "create", subvolume(t.Dir)); err != nil {
		return err
	}
	return os.Chmod(subvolume(t.Dir), 0o755) // whatever the umask is
}

// Remove deletes the subvolume. If it cannot, as when there are other subvolumes in it, the
// Store deletes file by file.
func (*Driver) Remove(ctx context.Context, l snapshot.Layer) error {
	if _, err := os.Lstat(subvolume(l.Dir)); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	if err := run(ctx, "delete", subvolume(l.Dir)); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return nil
}

// run runs btrfs subvolume.
func run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "btrfs", append([]string{"subvolume"}, args...)...)
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("the command btrfs is missing; Debian has it in btrfs-progs: %w", err)
	}
	if err != nil {
		return fmt.Errorf("btrfs subvolume %s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}
