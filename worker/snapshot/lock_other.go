//go:build !unix

package snapshot

import (
	"fmt"
	"os"
	"runtime"
)

func takeLock(path string) (*os.File, error) {
	return nil, fmt.Errorf("lock %s: %w on %s", path, ErrUnsupported, runtime.GOOS)
}
