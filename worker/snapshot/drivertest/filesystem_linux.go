package drivertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// packages say where Debian has mkfs of a file system.
var packages = map[string]string{"btrfs": "btrfs-progs", "xfs": "xfsprogs", "ext4": "e2fsprogs"}

// Filesystem makes a file system in a file and mounts it on dir, for as long as the test takes.
// Without root the test is skipped; without the program that makes it, it fails.
func Filesystem(t testing.TB, kind, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("needs root: it mounts a %s of its own", kind)
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := MakeFilesystem(kind, image, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
}

// MakeFilesystem makes a file system in the file image and mounts it on dir.
func MakeFilesystem(kind, image, dir string) error {
	mkfs, err := exec.LookPath("mkfs." + kind)
	if err != nil {
		return fmt.Errorf("%w; Debian has it in %s", err, packages[kind])
	}
	for _, args := range [][]string{{"truncate", "-s", "1G", image}, {mkfs, "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", args, err, out)
		}
	}
	return nil
}
