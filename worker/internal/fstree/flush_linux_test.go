package fstree_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/fstree"
)

// TestFlush: on ext4 without a journal fsync did not write the inode of an image that mkfs.erofs had written, nor of a
// directory, if the system had begun to write it before: after a power cut the image read as zeros. The inode is made
// dirty, and keeps its times.
func TestFlush(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, dir} {
		var before, after unix.Stat_t
		if err := unix.Stat(path, &before); err != nil {
			t.Fatal(err)
		}
		for range 1000 { // a time of a file is coarser than the clock
			if err := fstree.Flush(path); err != nil {
				t.Fatal(err)
			}
			if err := unix.Stat(path, &after); err != nil {
				t.Fatal(err)
			}
			if after.Ctim != before.Ctim {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if after.Ctim == before.Ctim {
			t.Errorf("%s: the inode was not made dirty", path)
		}
		if after.Mtim != before.Mtim || after.Atim != before.Atim {
			t.Errorf("%s: %v and %v have become %v and %v", path, before.Atim, before.Mtim, after.Atim, after.Mtim)
		}
	}
	if err := fstree.Flush(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Error(err)
	}
}
