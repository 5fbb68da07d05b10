//go:build unix

package cli

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// owner says whose the file is and what its mode is, as far as it is known.
func owner(file string) string {
	info, err := os.Stat(file)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	name := strconv.Itoa(int(stat.Uid))
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	return fmt.Sprintf(" (it belongs to %s, mode %s)", name, info.Mode().Perm())
}

// copyOwner gives the file at path the owner that info shows, if it may.
func copyOwner(path string, info os.FileInfo) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		_ = os.Chown(path, int(stat.Uid), int(stat.Gid)) // only root may, mostly
	}
}

// flushDir makes a rename in dir durable.
func flushDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
