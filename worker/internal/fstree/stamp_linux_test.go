package fstree_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/fstree"
)

func stampOf(t *testing.T, path string) fstree.Stamp {
	t.Helper()
	s, err := stampAt(path)
	must(t, err)
	return s
}

func sourceOf(t *testing.T, path string) fstree.Sum {
	t.Helper()
	sum, err := digestAt(path, false)
	must(t, err)
	return sum
}

func stampAt(path string) (fstree.Stamp, error) {
	f, err := fstree.OpenSource(path)
	if err != nil {
		return fstree.Stamp{}, err
	}
	defer f.Close()
	return fstree.StampOf(context.Background(), f)
}

func digestAt(path string, anyOwner bool) (sum fstree.Sum, err error) {
	f, err := fstree.OpenSource(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	return fstree.DigestSource(context.Background(), f, anyOwner)
}

// plainTree is a tree without what is special.
func plainTree(t *testing.T) string {
	t.Helper()
	tree := growTree(t)
	for _, name := range []string{"pipe", "gone", "null"} {
		if err := os.Remove(filepath.Join(tree, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return tree
}

// TestStamp: each change of what a digest is of makes another stamp, also one that leaves the digest, size
// and time of modification.
func TestStamp(t *testing.T) {
	tree := plainTree(t)
	at := func(name string) string { return filepath.Join(tree, name) }
	before := stampOf(t, tree)
	if again := stampOf(t, tree); again != before {
		t.Fatalf("%+v, and unchanged %+v", before, again)
	}
	if before.Entries != 11 || before.Foreign {
		t.Errorf("%+v", before)
	}
	info, err := os.Stat(at("file"))
	must(t, err)
	for name, change := range map[string]func() error{
		"content": func() error {
			return errors.Join(os.WriteFile(at("file"), []byte("CONTENT"), 0o644), os.Chtimes(at("file"), info.ModTime(), info.ModTime()))
		},
		"mode":      func() error { return os.Chmod(at("file"), 0o600) },
		"attribute": func() error { return unix.Setxattr(at("a"), "user.two", []byte("3"), 0) },
		"new":       func() error { return os.WriteFile(at("z/new"), nil, 0o644) },
		"removed":   func() error { return os.Remove(at("a/empty")) },
		"link":      func() error { return errors.Join(os.Remove(at("link")), os.Symlink("elif", at("link"))) },
		"root":      func() error { return os.Chmod(tree, 0o700) },
	} {
		time.Sleep(20 * time.Millisecond) // a tick of the clock by which files are stamped
		was := stampOf(t, tree)
		must(t, change())
		now := stampOf(t, tree)
		if now.Sum == was.Sum || now.Changed <= was.Changed {
			t.Errorf("%s: %+v, and before %+v", name, now, was)
		}
	}
	must(t, unix.Mkfifo(at("z/pipe"), 0o600))
	for _, path := range []string{tree, at("z/pipe"), "/dev/null", "/proc/self", "/proc/version"} {
		if _, err := stampAt(path); !errors.Is(err, fstree.ErrSpecial) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestDigestSource: a file, a directory and links to them.
func TestDigestSource(t *testing.T) {
	tree := plainTree(t)
	at := func(name string) string { return filepath.Join(tree, name) }
	must(t, os.Symlink("a", at("to")))
	if sourceOf(t, at("to")) != sourceOf(t, at("a")) || sourceOf(t, at("link")) != sourceOf(t, at("file")) {
		t.Error("a link at the source is not followed")
	}
	twin := filepath.Join(t.TempDir(), "twin")
	must(t, os.Mkdir(twin, 0o755))
	must(t, fstree.Copy(context.Background(), tree, twin))
	if sourceOf(t, tree) != sourceOf(t, twin) {
		t.Error("a copy is another source")
	}
	file := sourceOf(t, at("file"))
	must(t, os.Chmod(at("file"), 0o700))
	if sourceOf(t, at("file")) == file {
		t.Error("the mode of a file does not count")
	}
	if os.Geteuid() == 0 {
		must(t, os.Lchown(filepath.Join(twin, "a", "b", "large"), 5, 6))
		if sourceOf(t, filepath.Join(twin, "a", "b")) == sourceOf(t, at("a/b")) {
			t.Error("the owner does not count")
		}
		one, err := digestAt(filepath.Join(twin, "a", "b"), true)
		must(t, err)
		two, err := digestAt(at("a/b"), true)
		must(t, err)
		if one != two {
			t.Error("the owner counts")
		}
	}
	must(t, unix.Mkfifo(at("pipe"), 0o600))
	for _, path := range []string{tree, at("pipe")} {
		if _, err := digestAt(path, false); !errors.Is(err, fstree.ErrSpecial) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := digestAt(at("nothing"), false); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func place(from, to, name string, o fstree.PlaceOptions) error {
	dir, err := os.Open(to)
	if err != nil {
		return err
	}
	defer dir.Close()
	source, err := fstree.OpenSource(from)
	if err != nil {
		return err
	}
	defer source.Close()
	if name == "" {
		return fstree.PlaceContent(context.Background(), source, dir, o)
	}
	return fstree.Place(context.Background(), source, dir, name, o)
}

// TestPlace: what is copied comes besides what is there, and in place of files.
func TestPlace(t *testing.T) {
	tree, to := plainTree(t), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(to, "a", "own"), 0o755))
	must(t, os.WriteFile(filepath.Join(to, "file"), []byte("other"), 0o600))
	must(t, unix.Chmod(filepath.Join(tree, "a", "empty"), 0o4711))
	must(t, place(tree, to, "", fstree.PlaceOptions{}))
	if b, err := os.ReadFile(filepath.Join(to, "file")); err != nil || string(b) != "content" {
		t.Errorf("%q, %v", b, err)
	}
	info, err := os.Stat(filepath.Join(to, "a", "empty"))
	must(t, err)
	was, err := os.Stat(filepath.Join(tree, "a", "empty"))
	must(t, err)
	if info.Mode() != 0o711 || !info.ModTime().Equal(was.ModTime()) {
		t.Errorf("%v %v, and %v", info.Mode(), info.ModTime(), was.ModTime())
	}
	if _, err := os.Stat(filepath.Join(to, "a", "own")); err != nil {
		t.Error(err)
	}
	must(t, os.RemoveAll(to))
	must(t, os.Mkdir(to, 0o755))
	if os.Geteuid() == 0 {
		must(t, place(tree, to, "twin", fstree.PlaceOptions{Root: true}))
		one, err := digestAt(filepath.Join(to, "twin", "a"), true)
		must(t, err)
		must(t, unix.Removexattr(filepath.Join(tree, "a", "b"), "trusted.overlay.opaque")) // that is not copied
		two, err := digestAt(filepath.Join(tree, "a"), true)
		must(t, err)
		if one != two {
			t.Error("what was copied is something else")
		}
	}
}

// TestPlaceStaysInside: no link of the tree that is copied to, or of the one that is copied, leads out of
// it; and nothing is left of a copy that fails.
func TestPlaceStaysInside(t *testing.T) {
	outside, from, to := t.TempDir(), t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "file"), []byte("outside"), 0o600))
	must(t, os.MkdirAll(filepath.Join(from, "d"), 0o755))
	must(t, os.WriteFile(filepath.Join(from, "d", "file"), []byte("inside"), 0o600))
	must(t, os.WriteFile(filepath.Join(from, "f"), []byte("inside"), 0o600))
	must(t, os.Symlink(outside, filepath.Join(from, "link")))
	must(t, os.Symlink(outside, filepath.Join(to, "d")))
	must(t, os.Symlink(filepath.Join(outside, "file"), filepath.Join(to, "f")))
	if err := place(from, to, "", fstree.PlaceOptions{}); err == nil || !strings.Contains(err.Error(), "d: there is something else than a directory") {
		t.Errorf("a link in place of a directory: %v", err)
	}
	must(t, os.Remove(filepath.Join(to, "d")))
	must(t, place(from, to, "", fstree.PlaceOptions{}))
	if b, err := os.ReadFile(filepath.Join(outside, "file")); err != nil || string(b) != "outside" {
		t.Errorf("%q, %v", b, err)
	}
	if link, err := os.Readlink(filepath.Join(to, "link")); err != nil || link != outside {
		t.Errorf("%q, %v", link, err)
	}
	if info, err := os.Lstat(filepath.Join(to, "f")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
	must(t, os.MkdirAll(filepath.Join(to, "g"), 0o755))
	if err := place(filepath.Join(from, "f"), to, "g", fstree.PlaceOptions{}); err == nil {
		t.Error("a file in place of a directory")
	}
	must(t, unix.Mkfifo(filepath.Join(from, "pipe"), 0o600))
	if err := place(from, to, "", fstree.PlaceOptions{}); !errors.Is(err, fstree.ErrSpecial) {
		t.Errorf("a pipe: %v", err)
	}
	deep := filepath.Join(t.TempDir(), "deep")
	must(t, os.MkdirAll(filepath.Join(deep, strings.Repeat("d/", 300)), 0o755))
	if err := place(deep, to, "deep", fstree.PlaceOptions{}); err == nil || !strings.Contains(err.Error(), "deep") {
		t.Errorf("a deep tree: %v", err)
	}
	// What is there stays if its successor cannot be read. This file of the kernel cannot be read at all.
	must(t, os.WriteFile(filepath.Join(to, "kept"), []byte("kept"), 0o600))
	if err := place("/proc/sys/net/ipv4/route/flush", to, "kept", fstree.PlaceOptions{}); err == nil {
		t.Error("what cannot be read was copied")
	}
	if b, err := os.ReadFile(filepath.Join(to, "kept")); err != nil || string(b) != "kept" {
		t.Errorf("%q, %v", b, err)
	}
	left, err := filepath.Glob(filepath.Join(to, ".holdfast-*"))
	if err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// BenchmarkSource: 10,000 files of 4 KiB, in memory; first a digest, then the stamp that spares it.
func BenchmarkSource(b *testing.B) {
	dir := b.TempDir()
	for i := range 10_000 {
		name := filepath.Join(dir, fmt.Sprint(i%100), fmt.Sprint(i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(strings.Repeat(fmt.Sprint(i), 800)), 0o644)); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("digest", func(b *testing.B) {
		for b.Loop() {
			if _, err := digestAt(dir, false); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("place", func(b *testing.B) {
		for b.Loop() {
			if err := place(dir, b.TempDir(), "", fstree.PlaceOptions{Root: true}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("stamp", func(b *testing.B) {
		for b.Loop() {
			if _, err := stampAt(dir); err != nil {
				b.Fatal(err)
			}
		}
	})
}
