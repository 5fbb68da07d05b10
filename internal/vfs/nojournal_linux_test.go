package vfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// On ext4 without a journal a power cut took back pages of acknowledged commits: they read
// as zeros. Kernels do not write the inode there, in which the extent becomes a written
// one, unless the inode itself is dirty. TestMachinePowerCut cuts the power; this test sees
// that Sync makes the inode dirty there, and only there.
func TestSyncWritesInode(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []string
		touches bool
	}{
		{"ext4", nil, false},
		{"without journal", []string{"-O", "^has_journal"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if os.Geteuid() != 0 {
				t.Skip("needs root: mounts a file system")
			}
			image := filepath.Join(t.TempDir(), "image")
			if err := os.WriteFile(image, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(image, 16<<20); err != nil {
				t.Fatal(err)
			}
			mkfs := append(append([]string{"-q", "-F"}, c.options...), image)
			if out, err := exec.Command("mkfs.ext4", mkfs...).CombinedOutput(); err != nil {
				t.Fatalf("mkfs.ext4: %v: %s", err, out)
			}
			dir := t.TempDir()
			if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
				t.Fatalf("mount: %v: %s", err, out)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, 0); err != nil {
					t.Errorf("unmount: %v", err)
				}
			})
			path := filepath.Join(dir, "file")
			touched := func(flag int) bool {
				f, err := OpenOS(path, flag, 0o600, nil)
				if err != nil {
					t.Fatal(err)
				}
				old := time.Unix(1_000_000, 0)
				if err := os.Chtimes(path, old, old); err != nil {
					t.Fatal(err)
				}
				if err := f.Sync(); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
				s, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				return !s.ModTime().Equal(old)
			}
			for _, flag := range []int{os.O_RDWR | os.O_CREATE, os.O_RDONLY} {
				if got := touched(flag); got != c.touches {
					t.Errorf("opened with %#x: Sync touches the file: %v, want %v", flag, got, c.touches)
				}
			}
		})
	}
}
