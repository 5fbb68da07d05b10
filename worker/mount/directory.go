package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Directories that a Manager makes in its own, which are empty when it is closed.
const (
	rootDir    = "root" // where a namespace gets its new root
	markDir    = "mark" // where it has its mark
	mastersDir = "m"    // masters that are attached
	pointsDir  = "at"   // attachments that were given no path
)

var ownDirectories = []string{rootDir, markDir, mastersDir, pointsDir}

// RemoveDirectory removes the directory of a Manager that is closed, if there is nothing in it that the next one would
// need: no record of a mount, and no file that a Manager does not make. Otherwise it stays, which is not an error. The
// caller sees to it that no Manager is opened on it meanwhile.
func RemoveDirectory(dir string) error {
	if err := removeDirectory(dir); err != nil {
		return fmt.Errorf("mount: remove %s: %w", dir, err)
	}
	return nil
}

func removeDirectory(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	records := false
	for _, e := range entries {
		switch {
		case e.Name() == recordsFile:
			records = true
		case e.Name() == pidFile:
		case !e.IsDir() || !slices.Contains(ownDirectories, e.Name()) || !isEmpty(filepath.Join(dir, e.Name())):
			return nil
		}
	}
	if records {
		r, err := tryRecords(filepath.Join(dir, recordsFile))
		if err != nil {
			return nil // in use, or damaged: Open deals with it
		}
		kept, err := r.all()
		if err := errors.Join(err, r.db.Close()); err != nil {
			return err
		}
		if len(kept.runs)+len(kept.attached)+len(kept.uppers) > 0 {
			return nil
		}
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	err = os.Remove(dir)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EBUSY) {
		return nil
	}
	return err
}

// isEmpty tells whether a directory has nothing in it.
func isEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0
}
