//go:build linux

package containerd_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/testsuite"

	"holdfast/worker/containerd"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/overlay"
)

// suite runs containerd's tests of snapshotters. name tells them what overlayfs cannot do.
func suite(t *testing.T, name string, mode snapshot.SyncMode, driver func() snapshot.Driver) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	testsuite.SnapshotterSuite(t, name, func(ctx context.Context, root string) (snapshots.Snapshotter, func() error, error) {
		store, err := snapshot.Open(root, snapshot.Options{Driver: driver(), Sync: mode})
		if err != nil {
			return nil, nil, err
		}
		tenant, err := store.ClientTenant("testsuite")
		if err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
		return containerd.New(tenant), func() error { return sound(ctx, store) }, nil
	})
}

// sound looks at a store after a test, and closes it.
func sound(ctx context.Context, store *snapshot.Store) error {
	problems, err := store.Check(ctx)
	return errors.Join(append(problems, err, store.Finished(ctx), store.Cleanup(ctx), store.Close())...)
}

func TestSuiteOverlay(t *testing.T) {
	suite(t, "overlayfs", snapshot.SyncCommit, func() snapshot.Driver { return overlay.New() })
}

func TestSuiteOverlayDeferred(t *testing.T) {
	suite(t, "overlayfs", snapshot.SyncDeferred, func() snapshot.Driver { return overlay.New() })
}

func TestSuiteCopy(t *testing.T) {
	suite(t, "copy", snapshot.SyncCommit, func() snapshot.Driver { return copy.New() })
}
