package fstree

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Without openat2, which Linux has since 5.6, nothing could be removed.
func TestOpenCompared(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := os.Mkdir(filepath.Join(dir.Name(), "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	fd, err := openCompared(int(dir.Fd()), "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	root, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := openCompared(int(root.Fd()), "proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW); err != unix.EXDEV {
		t.Errorf("a mount point: %v", err)
	}
}
