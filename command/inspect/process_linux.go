package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"holdfast/command/cli"
	"holdfast/internal/share"
)

// environOf is the environment with which the process was started.
func environOf(pid uint) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil, err
	}
	return strings.Split(string(data), "\x00"), nil
}

// databasesOf are the paths, as the process has them, of the databases that it has open.
func databasesOf(pid uint) ([]string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		name, err := os.Readlink(file)
		info, statErr := os.Stat(file) // a pipe is not to be opened
		if err != nil || statErr != nil || !info.Mode().IsRegular() || !cli.HasMeta(file) {
			continue
		}
		if !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found, nil
}

// identityOf is that of the share of the database at path, which need not be readable.
func identityOf(path string) (id share.Identity, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return id, err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		id.Dev, id.Ino = uint64(s.Dev), s.Ino //nolint:unconvert // 32 bits on some processors
	}
	return id, nil
}
