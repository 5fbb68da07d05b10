package snapshot_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/drivertest"
)

// TestFullDisk: on a full disk what is there can be read and removed, and after that there is room again.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	drivertest.Filesystem(t, "ext4", dir)
	root := filepath.Join(dir, "store")
	s := open(t, root, snapshot.Options{})
	n := namespace(t, s, "t")
	for i := range 20 {
		layer(t, n, fmt.Sprint(i), "")
	}
	mounts, err := n.Prepare(ctx, "large", "")
	if err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(mounts[0].Source, "file"))
	failed := 0
	for i := range 2000 {
		_, err := n.Prepare(ctx, fmt.Sprint("more ", i), "19")
		if err != nil {
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("on a full disk: %v", err)
			}
			if failed++; failed == 3 {
				break
			}
		}
	}
	if failed == 0 {
		t.Fatal("the disk is not full")
	}
	if _, err := n.Stat(ctx, "7"); err != nil {
		t.Error(err)
	}
	sound(t, s)
	if err := errors.Join(n.Remove(ctx, "large"), s.Cleanup(ctx)); err != nil {
		t.Fatalf("remove on a full disk: %v", err)
	}
	layer(t, n, "afterwards", "19")
	sound(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := snapshot.Open(root, snapshot.Options{Driver: copy.New()}); !errors.Is(err, unix.EROFS) {
		t.Errorf("open on a read-only file system: %v", err)
	}
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 30; size > 0; {
		if unix.Fallocate(int(f.Fd()), 0, offset(t, f), int64(size)) != nil {
			size /= 2
		}
	}
}

func offset(t *testing.T, f *os.File) int64 {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
