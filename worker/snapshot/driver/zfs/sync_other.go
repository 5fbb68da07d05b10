//go:build !linux

package zfs

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

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
