package vfs

import (
	"fmt"
	"os"
	"syscall"
)

// This file makes the errors of calls on files and mappings.

var errNegativeOffset = fmt.Errorf("negative offset: %w", syscall.EINVAL)

// fileError wraps err, if there is one, with what was being done to which file.
func fileError(doing, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", doing, name, cause(err))
}

// mapError wraps what kept length bytes of a file from being mapped.
func mapError(name string, length int64, err error) error {
	return fmt.Errorf("map %d bytes of %s: %w: %w", length, name, ErrMapping, err)
}

// checkPin is the check of Mapping.Lock's argument.
func checkPin(name string, n int64, data []byte) error {
	if n < 0 || n > int64(len(data)) {
		return fmt.Errorf("mlock %s: %d of %d mapped bytes: %w", name, n, len(data), syscall.EINVAL)
	}
	return nil
}

// cause strips what package os puts around a system's error, so that the
// file's name does not appear twice.
func cause(err error) error {
	if path, ok := err.(*os.PathError); ok {
		return path.Err
	}
	return err
}
