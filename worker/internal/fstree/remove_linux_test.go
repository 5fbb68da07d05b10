package fstree_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/fstree"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func gone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", path, err)
	}
}

func TestRemove(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	outside := filepath.Join(dir, "outside")
	must(t, os.WriteFile(outside, []byte("x"), 0o600))
	tree := filepath.Join(dir, "tree")
	for i := range 3 {
		sub := filepath.Join(tree, fmt.Sprint(i))
		must(t, os.MkdirAll(sub, 0o700))
		for j := range 1500 { // more than are read at a time
			must(t, os.WriteFile(filepath.Join(sub, fmt.Sprint(j)), nil, 0o400))
		}
		must(t, os.Symlink(dir, filepath.Join(sub, "link")))
		must(t, unix.Mkfifo(filepath.Join(sub, "pipe"), 0o600))
		must(t, os.Chmod(sub, 0o500))
	}
	if os.Geteuid() != 0 { // who may delete from a directory without permission
		for i := range 3 {
			must(t, os.Chmod(filepath.Join(tree, fmt.Sprint(i)), 0o700))
		}
	}
	for range 2 { // it need not be there
		must(t, fstree.Remove(ctx, tree))
		gone(t, tree)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("what a link leads to: %v", err)
	}
	must(t, os.Symlink(dir, tree))
	must(t, fstree.Remove(ctx, tree))
	gone(t, tree)
	must(t, fstree.Remove(ctx, outside)) // a file
	gone(t, outside)
}

// TestRemoveDeep: a tree that is deeper than files can be open, and whose path is longer than a path can be.
func TestRemoveDeep(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "tree")
	must(t, os.Mkdir(tree, 0o700))
	must(t, os.Mkdir(filepath.Join(tree, "deep-1"), 0o700)) // a name that Remove would give
	fd, err := unix.Open(tree, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range 5000 {
		must(t, unix.Mkdirat(fd, "d", 0o700))
		next, err := unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = next
	}
	must(t, unix.Close(fd))
	must(t, fstree.Remove(context.Background(), tree))
	gone(t, tree)
}

func TestRemoveCanceled(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "tree")
	must(t, os.MkdirAll(filepath.Join(tree, "a"), 0o700))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := fstree.Remove(ctx, tree); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	must(t, fstree.Remove(context.Background(), tree))
	gone(t, tree)
}

// TestRemoveMounted: what is mounted in a tree is not entered, also if it is of the same file system.
func TestRemoveMounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	dir := t.TempDir()
	tree, other := filepath.Join(dir, "tree"), filepath.Join(dir, "other")
	must(t, os.MkdirAll(filepath.Join(tree, "a", "mnt"), 0o700))
	must(t, os.Mkdir(other, 0o700))
	must(t, os.WriteFile(filepath.Join(other, "precious"), nil, 0o600))
	must(t, unix.Mount(other, filepath.Join(tree, "a", "mnt"), "", unix.MS_BIND, ""))
	err := fstree.Remove(context.Background(), tree)
	if !errors.Is(err, fstree.ErrMounted) {
		t.Errorf("with something mounted: %v", err)
	}
	if _, err := os.Stat(filepath.Join(other, "precious")); err != nil {
		t.Errorf("what was mounted: %v", err)
	}
	must(t, unix.Unmount(filepath.Join(tree, "a", "mnt"), 0))
	must(t, fstree.Remove(context.Background(), tree))
	gone(t, tree)
}

func TestRemoveProtected(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it protects files")
	}
	tree := filepath.Join(t.TempDir(), "tree")
	must(t, os.MkdirAll(filepath.Join(tree, "a"), 0o700))
	file := filepath.Join(tree, "a", "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, args := range [][]string{{"+i", file}, {"+a", filepath.Join(tree, "a")}} {
		if out, err := exec.Command("chattr", args...).CombinedOutput(); err != nil {
			t.Skipf("this file system has no such attributes: %s", out)
		}
	}
	must(t, fstree.Remove(context.Background(), tree))
	gone(t, tree)
}

func TestMeasure(t *testing.T) {
	ctx, tree := context.Background(), filepath.Join(t.TempDir(), "tree")
	must(t, os.MkdirAll(filepath.Join(tree, "a", "b"), 0o700))
	must(t, os.WriteFile(filepath.Join(tree, "a", "1"), make([]byte, 1<<20), 0o600))
	for i := range 5 {
		must(t, os.Link(filepath.Join(tree, "a", "1"), filepath.Join(tree, "a", "b", fmt.Sprint(i))))
	}
	must(t, os.Symlink("/", filepath.Join(tree, "root")))
	must(t, os.WriteFile(filepath.Join(tree, "sparse"), nil, 0o600))
	must(t, os.Truncate(filepath.Join(tree, "sparse"), 1<<30))
	u, err := fstree.Measure(ctx, tree)
	if err != nil || u.Inodes != 6 || u.Size < 1<<20 || u.Size > 3<<19 {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := fstree.Measure(ctx, tree+"/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
}

// Remove also removes what its owner may not enter, who is not root.
func TestRemoveForbidden(t *testing.T) {
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	for _, d := range []string{"none", "read", "search", "none/none"} {
		must(t, os.MkdirAll(filepath.Join(tree, d, "sub"), 0o755))
		must(t, os.WriteFile(filepath.Join(tree, d, "file"), nil, 0))
		must(t, os.WriteFile(filepath.Join(tree, d, "sub", "file"), nil, 0))
	}
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{{"none/none/sub", 0}, {"none/none", 0}, {"none/sub", 0}, {"none", 0}, {"read", 0o400}, {"search", 0o100}, {".", 0o500}} {
		must(t, os.Chmod(filepath.Join(tree, d.path), d.mode))
	}
	if os.Geteuid() != 0 {
		must(t, fstree.Remove(t.Context(), tree))
	} else {
		const nobody = 65534
		must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, nobody, nobody))
		}))
		for d := filepath.Dir(dir); d != "/" && d != "/tmp"; d = filepath.Dir(d) {
			must(t, os.Chmod(d, 0o755))
		}
		removed := make(chan error)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with its user
			_, err := unix.SetfsuidRetUid(nobody)
			removed <- errors.Join(err, fstree.Remove(context.Background(), tree))
		}()
		must(t, <-removed)
	}
	gone(t, tree)
}
