package vfs

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// identityOf is that of the file at path.
func identityOf(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := OpenOS(path, os.O_RDWR|os.O_CREATE, 0o600, nil)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	id := f.Identity()
	if id == 0 {
		t.Fatalf("%s has no identity", path)
	}
	return id
}

// A file keeps its identity when it is opened again, written to or renamed. A copy has another one,
// and so has a file that is made in place of one that was removed, whose number the system may use again.
func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	path, moved, copied := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	id := identityOf(t, path)
	must(t, os.WriteFile(path, []byte("bytes"), 0o600))
	must(t, os.Rename(path, moved))
	if again := identityOf(t, moved); again != id {
		if underWine() {
			t.Skip("left out: wine takes the time at which a file was changed for that at which it was made")
		}
		t.Errorf("renamed and written to it is %x, it was %x", again, id)
	}
	in, err := os.Open(moved)
	must(t, err)
	out, err := os.Create(copied)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, err)
	must(t, in.Close())
	must(t, out.Close())
	if identityOf(t, copied) == id {
		t.Errorf("its copy is %x too", id)
	}
	// The clock of a file system ticks every some milliseconds: files made within one tick
	// may have the same birth time, and the same inode.
	for tries := 0; ; tries++ {
		must(t, os.Remove(moved))
		if identityOf(t, moved) != id {
			break
		}
		if tries == 10_000 {
			t.Fatalf("10,000 new files in its place are %x too", id)
		}
	}
}
