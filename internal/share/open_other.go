//go:build !linux

package share

import (
	"errors"
	"fmt"
	"runtime"

	"holdfast/internal/vfs"
)

var errNotHere = fmt.Errorf("%w on %s: sharing needs Linux", errors.ErrUnsupported, runtime.GOOS)

func openFile(string, int, Access) (*vfs.OSFile, error) { return nil, errNotHere }

func bootID() (id [2]uint64, err error) { return id, errNotHere }
