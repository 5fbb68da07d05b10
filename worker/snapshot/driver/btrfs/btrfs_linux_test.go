package btrfs_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/btrfs"
	"holdfast/worker/snapshot/drivertest"
)

func TestDriver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a btrfs of its own")
	}
	drivertest.Run(t, func(t *testing.T, root string) snapshot.Driver {
		drivertest.Filesystem(t, "btrfs", root)
		return btrfs.New()
	})
}

func TestNotBtrfs(t *testing.T) {
	dir := t.TempDir()
	drivertest.Filesystem(t, "ext4", dir)
	_, err := snapshot.Open(dir, snapshot.Options{Driver: btrfs.New()})
	if !errors.Is(err, snapshot.ErrUnsupported) {
		t.Errorf("on ext4: %v", err)
	}
}

// TestNestedSubvolume: one that somebody has made in a snapshot does not keep it from going.
func TestNestedSubvolume(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	drivertest.Filesystem(t, "btrfs", dir)
	s, err := snapshot.Open(dir, snapshot.Options{Driver: btrfs.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	namespace, err := s.Namespace("t")
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := namespace.Prepare(ctx, "a", "")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("btrfs", "subvolume", "create", filepath.Join(mounts[0].Source, "mine")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := errors.Join(namespace.Remove(ctx, "a"), s.Cleanup(ctx)); err != nil {
		t.Error(err)
	}
}
