package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate gives a file of size 0 so many bytes that are really its own.
func allocate(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return writeZeroes(f, size)
	}
	return err
}
