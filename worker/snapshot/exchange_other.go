//go:build !linux

package snapshot

import (
	"fmt"
	"runtime"
)

func exchangeNames(string, string) error {
	return fmt.Errorf("exchange directories: %w on %s", ErrUnsupported, runtime.GOOS)
}
