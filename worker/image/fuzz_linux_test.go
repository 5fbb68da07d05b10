package image

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"archive/tar"
)

// beside describes what is in a directory, apart from the tree below one name in it.
func beside(t testing.TB, dir, tree string) map[string]string {
	t.Helper()
	list := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == tree {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		list[path] = info.Mode().String() + info.ModTime().String()
		if d.Type().IsRegular() {
			b, err := os.ReadFile(path)
			list[path] += string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func seed(f *testing.F, headers ...tar.Header) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		h.ModTime = time.Unix(1, 0)
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	for kind := range byte(4) {
		f.Add(kind, b.Bytes())
	}
}

// FuzzExtract: whatever an archive says, nothing is changed outside of the tree, nor in the lower layer of an overlay.
func FuzzExtract(f *testing.F) {
	seed(f, tar.Header{Typeflag: tar.TypeDir, Name: "d", Mode: 0o700}, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "../../canary"},
		tar.Header{Typeflag: tar.TypeReg, Name: "d/f", Mode: 0o644}, tar.Header{Typeflag: tar.TypeLink, Name: "d/h", Linkname: "d/f"})
	seed(f, tar.Header{Typeflag: tar.TypeSymlink, Name: "d", Linkname: ".."}, tar.Header{Typeflag: tar.TypeReg, Name: "d/canary"})
	seed(f, tar.Header{Typeflag: tar.TypeReg, Name: "below/.wh.f"}, tar.Header{Typeflag: tar.TypeReg, Name: "below/.wh..wh..opq"}, tar.Header{Typeflag: tar.TypeReg, Name: "link/canary"})
	seed(f, tar.Header{Typeflag: tar.TypeLink, Name: "x", Linkname: "link/canary"}, tar.Header{Typeflag: tar.TypeFifo, Name: "link"}, tar.Header{Typeflag: tar.TypeReg, Name: "link/f"})
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		outer := t.TempDir()
		root, below := filepath.Join(outer, "a", "root"), filepath.Join(outer, "a", "below")
		fill := func(dir string) {
			check(t, os.MkdirAll(filepath.Join(dir, "below"), 0o755))
			check(t, os.WriteFile(filepath.Join(dir, "below", "f"), []byte("below"), 0o644))
			check(t, os.Symlink("../..", filepath.Join(dir, "link")))
		}
		check(t, os.MkdirAll(root, 0o755))
		check(t, os.WriteFile(filepath.Join(outer, "canary"), []byte("canary"), 0o600))
		fill(below)
		if kind&1 != 0 {
			fill(root)
		}
		before := beside(t, outer, root)
		var left LeftOut
		var lower *stack
		if kind&3 == 2 {
			lower = &stack{}
			check(t, lower.add(below))
		}
		limits := &budget{limits: Limits{Bytes: 1 << 20, Entries: 1000}.filled()}
		tree, err := newTree(root, lower != nil, kind&1 != 0, lower, &left, limits)
		check(t, err)
		x := &extraction{ctx: context.Background(), tree: tree, devices: DevicesSkip, budget: limits}
		_ = x.run(bytes.NewReader(b))
		tree.close()
		after := beside(t, outer, root)
		if len(after) != len(before) {
			t.Errorf("outside were %q\nand are %q", before, after)
		}
		for name, was := range before {
			if after[name] != was {
				t.Errorf("%s was %q and is %q", name, was, after[name])
			}
		}
		if len(tree.dirs) > 0 { // what was left unfinished may keep the test from cleaning up
			_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if d != nil && d.IsDir() {
					_ = os.Chmod(path, 0o700)
				}
				return nil
			})
		}
	})
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRace: while another process replaces a directory by a symbolic link and back, nothing that is written to the
// directory lands where the link leads to.
func TestRace(t *testing.T) {
	outer := t.TempDir()
	root, target := filepath.Join(outer, "root"), filepath.Join(outer, "target")
	check(t, os.MkdirAll(filepath.Join(root, "d", "e"), 0o755))
	check(t, os.MkdirAll(filepath.Join(target, "e"), 0o755))
	check(t, os.Symlink(target, filepath.Join(root, "other")))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			for _, swap := range [][2]string{{"d", "aside"}, {"other", "d"}, {"d", "other"}, {"aside", "d"}} {
				_ = os.Rename(filepath.Join(root, swap[0]), filepath.Join(root, swap[1]))
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	var left LeftOut
	tree, err := newTree(root, false, false, nil, &left, &budget{limits: Limits{}.filled()})
	check(t, err)
	inside := 0
	for i := range 3000 {
		tree.forget()
		if tree.file("d/e/f", attributes{mode: 0o600, mtime: time.Unix(int64(i), 0)}, 0, bytes.NewReader(nil)) == nil {
			inside++
		}
	}
	close(stop)
	<-stopped
	tree.close()
	if inside == 0 {
		t.Error("nothing was written at all")
	}
	if _, err := os.Lstat(filepath.Join(target, "e", "f")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was written outside: %v", err)
	}
}
