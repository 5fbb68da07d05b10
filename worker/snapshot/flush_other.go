//go:build !linux

package snapshot

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"

	"holdfast/worker/internal/fstree"
)

// sharedFlush: there is no call for a whole file system that waits.
const sharedFlush = false

type syncTarget struct{}

func (*syncTarget) open(string) error { return nil }
func (*syncTarget) close() error      { return nil }

func (*syncTarget) sync() error {
	return fmt.Errorf("flush a file system: %w on %s", ErrUnsupported, runtime.GOOS)
}

// flushTree flushes each file and directory.
func flushTree(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() && !d.IsDir() {
			return err
		}
		return fstree.Flush(path)
	})
	if err != nil {
		return err
	}
	return fstree.Flush(filepath.Dir(dir))
}

func bootID() (string, error) {
	return "", fmt.Errorf("an id of this boot: %w on %s", ErrUnsupported, runtime.GOOS)
}
