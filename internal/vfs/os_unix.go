//go:build unix && !openbsd

package vfs

import "golang.org/x/sys/unix"

// mapBeyondEnd says that a mapping may be longer than its file.
const mapBeyondEnd = true

// mapFile maps the first length bytes of the file.
func mapFile(fd uintptr, length int, opts MapOptions) ([]byte, error) {
	data, err := unix.Mmap(int(fd), 0, length, unix.PROT_READ, unix.MAP_SHARED|opts.Flags)
	if err != nil {
		return nil, err
	}
	// Readahead around a page of a B+tree brings pages that were not asked for.
	// This is advice only: a system that refuses it still has mapped the file.
	if !opts.ReadAhead {
		_ = unix.Madvise(data, unix.MADV_RANDOM)
	}
	return data, nil
}

func unmap(data []byte) error { return unix.Munmap(data) }

func pin(data []byte) error { return unix.Mlock(data) }

// ignoringEINTR repeats call while a signal interrupts it.
func ignoringEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
