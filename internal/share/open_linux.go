package share

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/internal/vfs"
)

// openFile opens a file for reading and writing that is neither a symbolic link nor anything but
// a file. A new one is given to those who may read what it is to be like.
func openFile(path string, flag int, like Access) (*vfs.OSFile, error) {
	// Without O_NONBLOCK a pipe would wait for its other end.
	flag |= os.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK
	file, err := vfs.OpenOS(path, flag, 0o600, func(path string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(path, flag, mode)
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s: %w", path, ErrForeign)
		}
		if err == nil && flag&os.O_CREATE != 0 {
			err = give(f, info, like)
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

// give makes a new file that of the user and the group who may read another one, as far as this process can.
func give(f *os.File, info os.FileInfo, like Access) error {
	mode, user, group := os.FileMode(0o600), -1, -1
	if like != nil {
		var of os.FileMode
		var err error
		if of, user, group, err = like.Access(); err != nil {
			return err
		}
		if of&0o040 != 0 {
			mode |= 0o060
		}
	}
	now, ok := info.Sys().(*syscall.Stat_t)
	if like != nil && ok && (int(now.Uid) != user || int(now.Gid) != group) {
		if f.Chown(user, group) != nil && int(now.Gid) != group && f.Chown(-1, group) != nil {
			mode = 0o600 // it would be that of another group
		}
	}
	return f.Chmod(mode)
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
