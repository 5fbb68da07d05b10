package erofs_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/erofs"
	"holdfast/worker/snapshot/drivertest"
)

func TestDriver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts images")
	}
	drivertest.Run(t, func(*testing.T, string) snapshot.Driver { return erofs.New() })
}

// TestAfterCrash: images that were not finished are, when the store is opened again.
func TestAfterCrash(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: overlay layers have trusted attributes")
	}
	ctx, root := context.Background(), t.TempDir()
	open := func() (*snapshot.Store, *snapshot.Namespace) {
		s, err := snapshot.Open(root, snapshot.Options{Driver: erofs.New()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		namespace, err := s.Namespace("t")
		if err != nil {
			t.Fatal(err)
		}
		return s, namespace
	}
	s, namespace := open()
	mounts, err := namespace.Prepare(ctx, "a", "")
	if err == nil {
		err = os.WriteFile(filepath.Join(mounts[0].Source, "file"), make([]byte, 1<<20), 0o600)
	}
	if err == nil {
		err = errors.Join(namespace.Commit(ctx, "c", "a"), s.Finished(ctx))
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := namespace.Stat(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "snapshots", info.ID.String())
	if u, err := namespace.Usage(ctx, "c"); err != nil || u.Size < 1<<20 || u.Inodes != 3 { // the directory, root/, the image
		t.Errorf("a finished snapshot takes %+v, %v", u, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// As a crash in the middle would leave it: the image half made, and what it is made of.
	if err := os.Mkdir(filepath.Join(dir, "fs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "fs", "file"), []byte("again"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "layer.erofs"), filepath.Join(dir, "layer.erofs.new")); err != nil {
		t.Fatal(err)
	}
	s, namespace = open()
	if _, err := s.Reconciled(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Finished(ctx); err != nil {
		t.Fatal(err)
	}
	if !erofs.New().Finished(snapshot.Layer{ID: info.ID, Dir: dir}) {
		t.Error("it is not finished after opening")
	}
	mounts, err = namespace.View(ctx, "view", "c")
	if err != nil {
		t.Fatal(err)
	}
	at, unmount := drivertest.Mount(t, mounts)
	if b, err := os.ReadFile(filepath.Join(at, "file")); err != nil || string(b) != "again" {
		t.Errorf("it has %q, %v", b, err)
	}
	unmount()
	if problems, err := s.Check(ctx); err != nil || len(problems) > 0 {
		t.Errorf("check: %v, %v", problems, err)
	}
}

// TestChildBeforeTheTreeGoes: a child needs its parent's image only. The tree of that is still there then, also when the process is
// killed, and goes with Finish.
func TestChildBeforeTheTreeGoes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("left out: overlay layers have trusted attributes, which need root")
	}
	parent := snapshot.Layer{ID: 1, Dir: t.TempDir()}
	d := erofs.New()
	create := func(tree snapshot.Tree) {
		t.Helper()
		if err := d.Create(t.Context(), tree); err != nil {
			t.Fatal(err)
		}
	}
	create(snapshot.Tree{Layer: parent, Kind: snapshot.Active})
	if err := os.WriteFile(filepath.Join(parent.Dir, "fs", "file"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	tree := func() bool {
		_, err := os.Stat(filepath.Join(parent.Dir, "fs"))
		return err == nil
	}
	create(snapshot.Tree{Layer: snapshot.Layer{ID: 2, Dir: t.TempDir()}, Kind: snapshot.Active, Parents: []snapshot.Layer{parent}})
	if _, err := os.Stat(filepath.Join(parent.Dir, "layer.erofs")); err != nil || !tree() || d.Finished(parent) {
		t.Errorf("image: %v, tree: %t, finished: %t", err, tree(), d.Finished(parent))
	}
	d = erofs.New() // of the next process
	create(snapshot.Tree{Layer: snapshot.Layer{ID: 3, Dir: t.TempDir()}, Kind: snapshot.Active, Parents: []snapshot.Layer{parent}})
	if err := d.Finish(t.Context(), parent); err != nil || tree() || !d.Finished(parent) {
		t.Errorf("%v, tree: %t, finished: %t", err, tree(), d.Finished(parent))
	}
}

// committed makes a store with a committed snapshot c, into which fill writes, and returns what the background has
// logged when that is finished.
func committed(t *testing.T, root string, fill func(dir string)) (*snapshot.Store, *snapshot.Namespace, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts images")
	}
	var log bytes.Buffer
	s, err := snapshot.Open(root, snapshot.Options{Driver: erofs.New(), Logger: slog.New(slog.NewTextHandler(&log, nil)), Digests: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	namespace, err := s.Namespace("t")
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := namespace.Prepare(t.Context(), "a", "")
	if err != nil {
		t.Fatal(err)
	}
	fill(mounts[0].Source)
	if err := errors.Join(namespace.Commit(t.Context(), "c", "a"), s.Finished(t.Context())); err != nil {
		t.Fatal(err)
	}
	_ = s.Digested(t.Context()) // there is none as long as the snapshot is not finished
	return s, namespace, log.String()
}

// usable fails unless a snapshot shows its file to a view, and to what is made on it, and can be verified and removed.
func usable(t *testing.T, s *snapshot.Store, namespace *snapshot.Namespace) {
	t.Helper()
	ctx := t.Context()
	parent := "c"
	for _, name := range []string{"d", "e"} { // on the tree, and on an image on it
		mounts, err := namespace.Prepare(ctx, name, parent)
		if err != nil {
			t.Fatal(err)
		}
		at, unmount := drivertest.Mount(t, mounts)
		if b, err := os.ReadFile(filepath.Join(at, "file")); err != nil || string(b) != "content" {
			t.Errorf("%s has %q, %v", name, b, err)
		}
		if err := os.WriteFile(filepath.Join(at, name), []byte(name), 0o600); err != nil {
			t.Error(err)
		}
		unmount()
		parent = "of " + name
		if err := errors.Join(namespace.Commit(ctx, parent, name), s.Finished(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	mounts, err := namespace.View(ctx, "view", "c")
	if err != nil {
		t.Fatal(err)
	}
	at, unmount := drivertest.Mount(t, mounts)
	if b, err := os.ReadFile(filepath.Join(at, "file")); err != nil || string(b) != "content" {
		t.Errorf("the view has %q, %v", b, err)
	}
	if err := os.WriteFile(filepath.Join(at, "new"), nil, 0o600); err == nil {
		t.Error("the view can be written")
	}
	unmount()
	if err := namespace.Verify(ctx, "c"); err != nil {
		t.Errorf("verify: %v", err)
	}
	if problems, err := s.Check(ctx); err != nil || len(problems) > 0 {
		t.Errorf("check: %v, %v", problems, err)
	}
	for _, name := range []string{"view", "of e", "of d", "c"} {
		if err := namespace.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	}
	if err := s.Cleanup(ctx); err != nil {
		t.Error(err)
	}
}

// TestDeepTree: mkfs.erofs died of a tree of 3,000 levels, whose paths are longer than the kernel takes; the log said
// that the snapshot could be used as it is, and nothing could be made on it. It stays a directory.
func TestDeepTree(t *testing.T) {
	root := t.TempDir()
	fill := func(dir string) {
		fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		for range 3000 {
			if err == nil {
				err = unix.Mkdirat(fd, "deep", 0o755)
			}
			next, e := unix.Openat(fd, "deep", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			err = errors.Join(err, e, unix.Close(fd))
			fd = next
		}
		if err := errors.Join(err, unix.Close(fd), os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	s, namespace, log := committed(t, root, fill)
	if log != "" && !strings.Contains(log, "stays a directory") {
		t.Errorf("logged: %s", log)
	}
	info, err := namespace.Stat(t.Context(), "c")
	if err != nil || info.Usage.Inodes < 3000 || (info.Digest == snapshot.Digest{}) {
		t.Errorf("%+v, %v", info, err)
	}
	why, err := os.ReadFile(filepath.Join(root, "snapshots", info.ID.String(), "no-image"))
	if err != nil || !strings.Contains(string(why), "mkfs.erofs") {
		t.Errorf("%q, %v", why, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = snapshot.Open(root, snapshot.Options{Driver: erofs.New()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if namespace, err = s.Namespace("t"); err != nil {
		t.Fatal(err)
	}
	usable(t, s, namespace)
}

// TestProgramFails: whatever mkfs.erofs dies of, the snapshot is usable; unless it was for want of room: then it is
// tried again, and until there is room nothing is made on the snapshot.
func TestProgramFails(t *testing.T) {
	bin := t.TempDir()
	old := os.Getenv("PATH")
	program := func(script string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, "mkfs.erofs"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", bin+":"+old)
	}
	fill := func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for what, script := range map[string]string{"exit code": "exit 1", "nothing": "exit 0", "no image": "head -c 8192 /dev/zero > /file || yes | head -c 8192 > /file", "a fault": "exec perl -e 'unpack(q(p), pack(q(J), 1))'", "half an image": "echo half > /file; exit 7"} {
		program(script)
		s, namespace, _ := committed(t, t.TempDir(), fill)
		t.Setenv("PATH", old)
		t.Log(what)
		usable(t, s, namespace)
	}
	program("echo mkfs.erofs: No space left on device >&2; exit 1")
	s, namespace, log := committed(t, t.TempDir(), fill)
	if !strings.Contains(log, "No space left on device") {
		t.Errorf("logged: %s", log)
	}
	if _, err := namespace.Prepare(t.Context(), "x", "c"); err == nil || !strings.Contains(err.Error(), "No space left") {
		t.Errorf("prepare: %v", err)
	}
	t.Setenv("PATH", old)
	usable(t, s, namespace)
}
