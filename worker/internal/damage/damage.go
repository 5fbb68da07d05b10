// Package damage tells whether a file of Holdfast, such as the metadata of a store, is damaged.
package damage

import (
	"errors"

	"holdfast"
)

// Is tells whether an error of opening or reading a file says that the file is damaged, is of another kind, or cannot
// be read from its disk.
func Is(err error) bool {
	var corrupt *holdfast.CorruptError
	if errors.As(err, &corrupt) {
		return true
	}
	for _, e := range []error{holdfast.ErrInvalid, holdfast.ErrChecksum, holdfast.ErrVersionMismatch, holdfast.ErrTornCopy, holdfast.ErrUnreadable} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
