package vfs

import (
	"errors"
	"slices"
)

// IsFull tells whether err says that there is no room: on the disk, in a quota,
// or below a limit on the size of files.
func IsFull(err error) bool {
	return slices.ContainsFunc(full, func(e error) bool { return errors.Is(err, e) })
}
