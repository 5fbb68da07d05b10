package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestPlace: of two "blob key" with one name at the same time, the later could replace the key of the earlier, with which a store had been
// encrypted by then: between the look for what is there and the renaming. What is new replaces nothing without --force.
func TestPlace(t *testing.T) {
	dir := t.TempDir()
	temp, dst := filepath.Join(dir, "temp"), filepath.Join(dir, "dst")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(text string, isTemp bool) {
		t.Helper()
		got, err := os.ReadFile(dst)
		_, left := os.Stat(temp)
		if err != nil || string(got) != text || isTemp != (left == nil) {
			t.Errorf("%q, not %q: %v, %v", got, text, err, left)
		}
	}
	write(temp, "one")
	if err := place(temp, dst, OutputFile{Path: dst}, true); err != nil {
		t.Error(err)
	}
	want("one", false)
	write(temp, "two")
	if err := place(temp, dst, OutputFile{Path: dst}, true); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	want("one", true)
	if err := place(temp, dst, OutputFile{Path: dst, Force: true}, true); err != nil {
		t.Error(err)
	}
	want("two", false)
	// NFS can say of a link that it has just made that it is there already: "another program has made it", and the key was there.
	write(temp, "four")
	if err := errors.Join(os.Remove(dst), os.Link(temp, dst)); err != nil {
		t.Fatal(err)
	}
	if err := place(temp, dst, OutputFile{Path: dst}, true); err != nil {
		t.Error(err)
	}
	want("four", false)
	write(temp, "three")
	if err := place(temp, dst, OutputFile{Path: dst}, false); err != nil { // what may be replaced
		t.Error(err)
	}
	want("three", false)
}
