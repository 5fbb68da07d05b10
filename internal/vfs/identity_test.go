package vfs

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
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
	must(t, os.Remove(moved))
	time.Sleep(50 * time.Millisecond) // the clock of a file system has ticks
	if identityOf(t, moved) == id {
		t.Errorf("a new file in its place is %x too", id)
	}
}
