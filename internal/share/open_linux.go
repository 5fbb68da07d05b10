package share

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/internal/vfs"
)

// openFile opens a file for reading and writing that is neither a symbolic link nor anything but
// a file. A new one gets the mode as it is.
func openFile(path string, flag int, mode os.FileMode) (*vfs.OSFile, error) {
	// Without O_NONBLOCK a pipe would wait for its other end.
	flag |= os.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK
	file, err := vfs.OpenOS(path, flag, mode, func(path string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(path, flag, mode)
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s: %w", path, ErrForeign)
		}
		if err == nil && flag&os.O_CREATE != 0 {
			err = f.Chmod(mode)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	})
	if err != nil {
		return nil, err
	}
	return file.(*vfs.OSFile), nil
}

// bootID is another one after each boot, and on each machine. A directory may be seen by several
// machines, between which neither locks nor mappings reach.
func bootID() (id [2]uint64, err error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, fmt.Errorf("%w without /proc: %w", errors.ErrUnsupported, err)
	}
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err != nil || len(b) != 16 {
		return id, fmt.Errorf("boot_id %q: %w", text, errors.ErrUnsupported)
	}
	for i := range id {
		for _, x := range b[i*8 : i*8+8] {
			id[i] = id[i]<<8 | uint64(x)
		}
	}
	return id, nil
}
