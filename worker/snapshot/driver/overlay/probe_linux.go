package overlay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/worker/snapshot"
)

// Probe tries whether the file system of root can hold layers: overlayfs wants the types of
// directory entries, and extended attributes that only it uses. It mounts nothing, so it says
// nothing about the kernel or privileges; nor does it say anything if there is no room to try.
func (d *Driver) Probe(root string) error {
	if strings.ContainsAny(root, `,:\"`) {
		return fmt.Errorf("%w: the path %s has a character that means something in mount options", snapshot.ErrInvalid, root)
	}
	if os.Geteuid() != 0 {
		return nil // trusted attributes are root's; mounting says the rest
	}
	err := d.probe(root)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil
	}
	return err
}

func (d *Driver) probe(root string) error {
	dir, err := os.MkdirTemp(root, probePrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	attribute := "trusted.overlay.probe"
	if slices.Contains(d.options, "userxattr") { // as root of a user namespace, which may set no others
		attribute = "user.overlay.probe"
	}
	if err := unix.Setxattr(dir, attribute, []byte("y"), 0); err != nil {
		return fmt.Errorf("extended attributes, which overlayfs needs, in %s: %w (%w)", root, err, snapshot.ErrUnsupported)
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
		return err
	}
	if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "a"), unix.AT_FDCWD, filepath.Join(dir, "b"), unix.RENAME_WHITEOUT); err != nil {
		return fmt.Errorf("whiteouts, which overlayfs needs, in %s: %w (%w)", root, err, snapshot.ErrUnsupported)
	}
	return nil
}
