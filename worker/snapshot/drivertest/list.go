package drivertest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// List describes each file below dir, and dir itself as ".": type, mode, owner, content or
// target, extended attributes, and which names are the same file.
func List(t testing.TB, dir string) map[string]string {
	t.Helper()
	list := map[string]string{}
	first := map[uint64]string{} // of files with several names
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%v %s", info.Mode(), attributes(path, info))
		switch {
		case d.Type().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d bytes %x", len(b), sha256.Sum256(b))
			if ino := sharedInode(info); ino != 0 {
				if first[ino] == "" {
					first[ino] = name
				}
				line += " same as " + first[ino]
			}
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		list[name] = line
		return nil
	})
	if err != nil {
		t.Fatalf("list %s: %v", dir, err)
	}
	return list
}

// Equal reports how two lists differ.
func Equal(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	for name, line := range want {
		if got[name] != line {
			t.Errorf("%s: %s is %q, and should be %q", what, name, got[name], line)
		}
	}
	for name, line := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is there (%q), and should not be", what, name, line)
		}
	}
}
