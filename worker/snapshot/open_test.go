package snapshot_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// put makes files below root, and directories for names that end with a slash.
func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o700)
		} else if err == nil {
			err = os.WriteFile(path, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// all lists what is below root, with content.
func all(t *testing.T, root string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			list = append(list, path+"/")
			return err
		}
		b, err := os.ReadFile(path)
		list = append(list, fmt.Sprintf("%s %x", path, b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// database is the content of a database with these buckets.
func database(t *testing.T, buckets ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x")
	db, err := holdfast.Open(path, 0o600, nil)
	if err == nil {
		err = db.Update(func(tx *holdfast.Tx) error {
			for _, name := range buckets {
				if _, err := tx.CreateBucket([]byte(name)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A directory with other content became a store: its trash and new were deleted as leftovers of a crash, its lock and
// emergency were overwritten, and a metadata.db of another program got the store's buckets.
func TestOpenLeavesOthers(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"file":            {"notes.txt": "mine"},
		"directory":       {"src/": ""},
		"trash":           {"trash/9/x": "mine"},
		"new":             {"new/1/y": "mine"},
		"emergency":       {"emergency": "call the fire brigade"},
		"lock":            {"lock": "two keys"},
		"locks":           {"lock/": ""},
		"number and more": {"lock": "12\n", "pid": "12\n"},
		"snapshots":       {"snapshots/1/fs/x": "mine", "lock": "mine"},
		"plain snapshots": {"snapshots": "mine"},
		"metadata":        {"metadata.db": database(t, "v1")},
		"their meta":      {"metadata.db": database(t, "meta", "snapshots", "v1"), "snapshots/1/fs/x": "mine"},
		"no database":     {"metadata.db": strings.Repeat("a table of films\n", 1000)},
		"other's probe":   {"probe-1/a": "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			put(t, root, files)
			before := all(t, root)
			s, err := snapshot.Open(root, snapshot.Options{Driver: copy.New()})
			if err == nil {
				_ = s.Close()
			}
			if !errors.Is(err, snapshot.ErrNotStore) && !errors.Is(err, snapshot.ErrNoMetadata) && !errors.Is(err, snapshot.ErrCorrupt) {
				t.Errorf("opening: %v", err)
			}
			if after := all(t, root); !slices.Equal(before, after) {
				t.Errorf("there was\n%.2000s\nand is\n%.2000s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
			if err := snapshot.CheckPlace(root, copy.New()); err == nil {
				t.Error("CheckPlace says that it is fit")
			}
		})
	}
}

// TestOpenFinishesMaking: what making a store leaves that was cut short does not matter, nor is the root of a file
// system.
func TestOpenFinishesMaking(t *testing.T) {
	dirs := map[string]string{"lock": "4711\n", "snapshots/": "", "new/": "", "trash/": ""}
	with := func(metadata string) map[string]string {
		files := map[string]string{"metadata.db": metadata}
		for name, content := range dirs {
			files[name] = content
		}
		return files
	}
	for name, files := range map[string]map[string]string{
		"nothing": {}, "disk": {"lost+found/": ""}, "lock": {"lock": ""}, "signed": {"lock": "1\n"}, "directories": dirs,
		"no length": with(""), "zeros": with(string(make([]byte, 4*os.Getpagesize()))), "no buckets": with(database(t)),
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			put(t, root, files)
			if err := snapshot.CheckPlace(root, copy.New()); err != nil {
				t.Error(err)
			}
			s := open(t, root, snapshot.Options{})
			layer(t, namespace(t, s, "t"), "a", "")
			sound(t, s)
		})
	}
	if err := snapshot.CheckPlace(filepath.Join(t.TempDir(), "none"), copy.New()); err != nil {
		t.Error(err)
	}
}

// Damaged metadata were an "invalid database" of which the file was not named.
func TestOpenNamesMetadata(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, snapshot.Options{})
	layer(t, namespace(t, s, "t"), "a", "")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "metadata.db")
	for what, change := range map[string]func([]byte) []byte{
		"metas":     func(b []byte) []byte { return append(make([]byte, 2*os.Getpagesize()), b[2*os.Getpagesize():]...) },
		"something": func([]byte) []byte { return []byte(strings.Repeat("x", 40000)) },
		"cut":       func(b []byte) []byte { return b[:2*os.Getpagesize()] },
		"short":     func(b []byte) []byte { return b[:100] },
	} {
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, change(slices.Clone(b)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = snapshot.Open(root, snapshot.Options{Driver: copy.New()})
		want(t, what, err, snapshot.ErrCorrupt)
		if err != nil && strings.Count(err.Error(), path) != 1 {
			t.Errorf("%s: %v", what, err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := namespace(t, open(t, root, snapshot.Options{}), "t").Stat(ctx, "a"); err != nil {
		t.Error(err)
	}
}
