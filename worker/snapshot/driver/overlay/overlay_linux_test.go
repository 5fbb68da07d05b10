package overlay_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/overlay"
	"holdfast/worker/snapshot/drivertest"
)

func TestDriver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts overlays")
	}
	drivertest.Run(t, func(*testing.T, string) snapshot.Driver { return overlay.New() })
}

func TestTooDeep(t *testing.T) {
	tree := snapshot.Tree{Layer: snapshot.Layer{ID: 1, Dir: t.TempDir()}, Kind: snapshot.Active,
		Parents: make([]snapshot.Layer, overlay.MaxLayers+1)}
	if err := overlay.New().Create(context.Background(), tree); !errors.Is(err, overlay.ErrTooDeep) {
		t.Errorf("on %d parents: %v", len(tree.Parents), err)
	}
}

// A store on a disk without a free block could not be opened, so nothing in it could be removed: the driver tried what
// the file system can.
func TestProbeWithoutRoom(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a tmpfs")
	}
	for _, option := range []string{"nr_inodes=1", "nr_inodes=2"} {
		dir := t.TempDir()
		if err := unix.Mount("full", dir, "tmpfs", 0, option); err != nil {
			t.Fatal(err)
		}
		if err := overlay.New().Probe(dir); err != nil {
			t.Errorf("%s: %v", option, err)
		}
		if err := unix.Unmount(dir, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPathWithOptions: a directory whose name would be taken for options is refused.
func TestPathWithOptions(t *testing.T) {
	for _, c := range []string{",", ":", "\\"} {
		if err := overlay.New().Probe("/tmp/a" + c + "b"); !errors.Is(err, snapshot.ErrInvalid) {
			t.Errorf("%q: %v", c, err)
		}
	}
}
