//go:build unix

package snapshot

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// takeLock locks the file at path until it is closed, or the process ends. With create the file is made, and
// must not be there.
func takeLock(path string, create bool) (_ *os.File, err error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE | os.O_EXCL
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fmt.Errorf("%w (%s is locked by %s)", ErrLocked, path, holder(f))
	case err != nil:
		err = fmt.Errorf("lock %s: %w", path, err)
	default:
		return f, nil
	}
	_ = f.Close()
	return nil, err
}

// sign writes this process's id into the lock.
func sign(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

// holder names the process that has written itself into the lock.
func holder(f *os.File) string {
	var b [32]byte
	n, _ := f.ReadAt(b[:], 0)
	if pid := strings.TrimSpace(string(b[:n])); pid != "" {
		return "process " + pid
	}
	return "an unknown process"
}
