//go:build !linux

package inspect

import (
	"errors"
	"fmt"
	"os"

	"holdfast/internal/share"
)

func environOf(uint) ([]string, error) {
	return nil, fmt.Errorf("the environment of a process is read on Linux only: %w", errors.ErrUnsupported)
}

func databasesOf(pid uint) ([]string, error) {
	_, err := environOf(pid)
	return nil, err
}

// identityOf is one without numbers: no database is shared.
func identityOf(path string) (share.Identity, error) {
	_, err := os.Stat(path)
	return share.Identity{}, err
}
