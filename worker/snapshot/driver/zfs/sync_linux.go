package zfs

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// syncStore flushes the file system that has the Store's directories.
func syncStore(root, _ string) error {
	f, err := os.Open(filepath.Join(root, "snapshots"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("syncfs %s: %w", root, err)
	}
	return nil
}
