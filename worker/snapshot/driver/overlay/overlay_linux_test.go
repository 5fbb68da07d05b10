package overlay_test

import (
	"context"
	"errors"
	"os"
	"testing"

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

// TestPathWithOptions: a directory whose name would be taken for options is refused.
func TestPathWithOptions(t *testing.T) {
	for _, c := range []string{",", ":", "\\"} {
		if err := overlay.New().Probe("/tmp/a" + c + "b"); !errors.Is(err, snapshot.ErrInvalid) {
			t.Errorf("%q: %v", c, err)
		}
	}
}
