//go:build !linux

package zfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"holdfast/worker/snapshot"
)

// zfs-fuse is for Linux; elsewhere ZFS is in the kernel.
var errOther = fmt.Errorf("zfs-fuse on %s: %w", runtime.GOOS, errors.ErrUnsupported)

func (d *Driver) mountPoint(context.Context, snapshot.ID) error { return errOther }
func (d *Driver) clearAll() error                               { return nil }
func unmountPoint(string) error                                 { return errOther }
func statObjects(string) (int64, error)                         { return 0, errOther }

func syncStore(root, dir string) error {
	return errors.Join(syncDir(dir), syncDir(filepath.Join(root, "snapshots")))
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // it has no ZFS
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
