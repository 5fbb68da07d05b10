//go:build !unix

package snapshot

import (
	"fmt"
	"os"
	"runtime"
)

func takeLock(path string, _ bool) (*os.File, error) {
	return nil, fmt.Errorf("lock %s: %w on %s", path, ErrUnsupported, runtime.GOOS)
}

func sign(*os.File) error { return ErrUnsupported }
