//go:build !linux

package zfs

import (
	"errors"
	"path/filepath"

	"holdfast/worker/internal/fstree"
)

func syncStore(root, dir string) error {
	return errors.Join(fstree.Flush(dir), fstree.Flush(filepath.Join(root, "snapshots")))
}
