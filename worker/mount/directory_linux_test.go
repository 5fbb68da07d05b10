package mount

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRemoveDirectory: of a store that was deleted long ago an empty directory stayed in /run. One with a record of
// something mounted, or with a file of another program, stays.
func TestRemoveDirectory(t *testing.T) {
	there := func(dir string) bool {
		t.Helper()
		_, err := os.Stat(dir)
		return err == nil
	}
	remove := func(dir string) {
		t.Helper()
		if err := RemoveDirectory(dir); err != nil {
			t.Error(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "run")
	remove(dir) // that is not there
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if remove(dir); there(dir) {
		t.Error("an empty directory stays")
	}

	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r, _, err := openRecords(dir)
	if err != nil {
		t.Fatal(err)
	}
	if remove(dir); !there(dir) {
		t.Error("one that is in use is gone")
	}
	if err := r.putUpper("name", upperRecord{upper: "/a", work: "/b", dev: 1}); err != nil {
		t.Fatal(err)
	}
	if err := r.db.Close(); err != nil {
		t.Fatal(err)
	}
	if remove(dir); !there(filepath.Join(dir, recordsFile)) {
		t.Error("one with a record is gone")
	}
	if r, _, err = openRecords(dir); err != nil {
		t.Fatal(err)
	}
	if err := r.dropUpper("name"); err != nil {
		t.Fatal(err)
	}
	if err := r.db.Close(); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "another's")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if remove(dir); !there(filepath.Join(dir, recordsFile)) {
		t.Error("one with a file of another program is gone")
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if remove(dir); there(dir) {
		t.Error("one with records of nothing stays")
	}

	// Where /run is a tmpfs, as on most machines, a manager mounts none of its own, and what it made there stayed.
	for _, left := range []string{"", "at/1"} {
		for _, d := range ownDirectories {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, pidFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if left != "" {
			if err := os.Mkdir(filepath.Join(dir, left), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if remove(dir); there(dir) != (left != "") {
			t.Errorf("with %q left, the directory is there: %t", left, there(dir))
		}
	}
}
