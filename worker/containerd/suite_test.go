//go:build linux

package containerd_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/testsuite"
	"golang.org/x/sys/unix"

	"holdfast/worker/containerd"
	"holdfast/worker/internal/testing/zfsfuse"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/btrfs"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/erofs"
	"holdfast/worker/snapshot/driver/overlay"
	"holdfast/worker/snapshot/driver/zfs"
	"holdfast/worker/snapshot/drivertest"
)

// suite runs containerd's tests of snapshotters. name tells them what overlayfs cannot do.
// fs is a file system of which each test makes one, "": that of temporary files.
func suite(t *testing.T, name, fs string, mode snapshot.SyncMode, driver func() snapshot.Driver) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	testsuite.SnapshotterSuite(t, name, func(ctx context.Context, root string) (snapshots.Snapshotter, func() error, error) {
		if fs != "" {
			if err := drivertest.MakeFilesystem(fs, root+".image", root); err != nil {
				return nil, nil, err
			}
		}
		store, err := snapshot.Open(root, snapshot.Options{Driver: driver(), Sync: mode})
		if err != nil {
			return nil, nil, err
		}
		namespace, err := store.ClientNamespace("testsuite")
		if err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
		snapshotter := containerd.New(namespace)
		return snapshotter, func() error {
			err := errors.Join(snapshotter.Close(), sound(ctx, store))
			if fs != "" {
				err = errors.Join(err, unmount(root))
			}
			return err
		}, nil
	})
}

// unmount tries again what is busy: a child that another test is starting has, until it executes its program, all
// files of this process.
func unmount(dir string) (err error) {
	for range 200 {
		if err = unix.Unmount(dir, 0); !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// sound looks at a store after a test, and closes it.
func sound(ctx context.Context, store *snapshot.Store) error {
	problems, err := store.Check(ctx)
	return errors.Join(append(problems, err, store.Finished(ctx), store.Cleanup(ctx), store.Close())...)
}

func TestSuiteOverlay(t *testing.T) {
	suite(t, "overlayfs", "", snapshot.SyncCommit, func() snapshot.Driver { return overlay.New() })
}

func TestSuiteOverlayDeferred(t *testing.T) {
	suite(t, "overlayfs", "", snapshot.SyncDeferred, func() snapshot.Driver { return overlay.New() })
}

func TestSuiteCopy(t *testing.T) {
	suite(t, "copy", "", snapshot.SyncCommit, func() snapshot.Driver { return copy.New() })
}

func TestSuiteCopyXFS(t *testing.T) {
	suite(t, "copy", "xfs", snapshot.SyncCommit, func() snapshot.Driver { return copy.New() })
}

func TestSuiteBtrfs(t *testing.T) {
	suite(t, "btrfs", "btrfs", snapshot.SyncCommit, func() snapshot.Driver { return btrfs.New() })
}

// envList has the tests of TestSuiteZFS end as soon as they begin: their names are wanted.
const envList = "HOLDFAST_TEST_SUITE_LIST"

// TestSuiteZFS: each test has a zfs-fuse and a pool of its own.
func TestSuiteZFS(t *testing.T) {
	if !zfsfuse.InOwn() {
		if os.Geteuid() != 0 {
			t.Skip("needs root: it runs zfs-fuse")
		}
		names := zfsfuse.Subtests(t, envList+"=1")
		if len(names) < 21 {
			t.Fatalf("containerd has 21 tests, and there are %d: %v", len(names), names)
		}
		slices.Reverse(names) // the last takes longest: the others run beside it
		for _, name := range names {
			t.Run(name, func(t *testing.T) { zfsfuse.Own(t) })
		}
		return
	}
	testsuite.SnapshotterSuite(t, "zfs", func(ctx context.Context, root string) (snapshots.Snapshotter, func() error, error) {
		if os.Getenv(envList) != "" {
			return nil, nil, errors.New("only the names are wanted")
		}
		pool, destroy, err := zfsfuse.MakePool(root+".image", 512<<20)
		if err != nil {
			return nil, nil, err
		}
		store, err := snapshot.Open(root, snapshot.Options{Driver: zfs.New(pool + "/holdfast")})
		if err != nil {
			return nil, nil, errors.Join(err, destroy())
		}
		namespace, err := store.ClientNamespace("testsuite")
		if err != nil {
			return nil, nil, errors.Join(err, store.Close(), destroy())
		}
		snapshotter := &served{Snapshotter: containerd.New(namespace), by: zfsfuse.NewMounter(), held: map[string]holding{}}
		return snapshotter, func() error {
			return errors.Join(snapshotter.Close(), sound(ctx, store), destroy())
		}, nil
	})
}

func TestSuiteErofs(t *testing.T) {
	suite(t, "erofs", "", snapshot.SyncDeferred, func() snapshot.Driver { return erofs.New() })
}
