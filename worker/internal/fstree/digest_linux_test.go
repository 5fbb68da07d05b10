package fstree_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/fstree"
)

func digestOf(t *testing.T, tree string) [32]byte {
	t.Helper()
	sum, err := fstree.Digest(context.Background(), tree, fstree.DigestOptions{})
	must(t, err)
	fresh, err := fstree.Digest(context.Background(), tree, fstree.DigestOptions{Fresh: true})
	must(t, err)
	if fresh != sum {
		t.Errorf("%s: read afresh it is %x, and was %x", tree, fresh, sum)
	}
	return sum
}

// growTree makes a tree with everything that a layer can hold; as an unprivileged user without what only root
// makes.
func growTree(t *testing.T) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	at := func(name string) string { return filepath.Join(tree, name) }
	must(t, os.MkdirAll(at("a/b"), 0o755))
	must(t, os.MkdirAll(at("z/zz"), 0o755)) // the last ones
	must(t, os.WriteFile(at("file"), []byte("content"), 0o644))
	must(t, os.WriteFile(at("a/empty"), nil, 0o644))
	must(t, os.WriteFile(at("a/b/large"), make([]byte, 3<<20), 0o600))
	f, err := os.OpenFile(at("a/b/large"), os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("in the middle"), 1<<20+77)
	must(t, err)
	must(t, f.Close())
	must(t, os.WriteFile(at("sparse"), []byte("begin"), 0o600))
	must(t, os.Truncate(at("sparse"), 1<<30+5))
	must(t, os.Symlink("file", at("link")))
	must(t, os.Link(at("file"), at("a/twin")))
	must(t, unix.Mkfifo(at("pipe"), 0o600))
	must(t, unix.Setxattr(at("file"), "user.one", []byte("1"), 0))
	must(t, unix.Setxattr(at("a"), "user.two", []byte("2"), 0))
	if os.Geteuid() == 0 {
		must(t, unix.Mknod(at("gone"), unix.S_IFCHR, 0))
		must(t, unix.Mknod(at("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		must(t, unix.Setxattr(at("a/b"), "trusted.overlay.opaque", []byte("y"), 0))
		must(t, unix.Setxattr(at("a/b"), "trusted.overlay.origin", []byte("lower"), 0))
	}
	return tree
}

func TestDigest(t *testing.T) {
	tree := growTree(t)
	want := digestOf(t, tree)
	before := map[string]time.Time{}
	for _, name := range []string{"file", "a", "link"} {
		info, err := os.Lstat(filepath.Join(tree, name))
		must(t, err)
		before[name] = info.ModTime()
	}
	twin := filepath.Join(t.TempDir(), "twin")
	must(t, os.Mkdir(twin, 0o755))
	must(t, fstree.Copy(context.Background(), tree, twin))
	if got := digestOf(t, twin); got != want {
		t.Errorf("a copy has %x, and should have %x", got, want)
	}
	long := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(filepath.Join(twin, "file"), long, long))
	must(t, os.WriteFile(filepath.Join(twin, "sparse"), append([]byte("begin"), make([]byte, 1<<20)...), 0o600)) // a hole becomes zeros
	must(t, os.Truncate(filepath.Join(twin, "sparse"), 1<<30+5))
	if got := digestOf(t, twin); got != want {
		t.Errorf("with another time, and zeros for a hole, it is %x, and should be %x", got, want)
	}
	for name, was := range before {
		if info, err := os.Lstat(filepath.Join(tree, name)); err != nil || !info.ModTime().Equal(was) {
			t.Errorf("%s was changed: %v, %v", name, info.ModTime(), err)
		}
	}
}

// TestDigestDiffers: each single change makes another digest, and no two the same one.
func TestDigestDiffers(t *testing.T) {
	type change struct {
		name string
		root bool
		do   func(at func(string) string) error
	}
	flip := func(path string, where int64) error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, where); err != nil {
			return err
		}
		b[0] ^= 4
		_, err = f.WriteAt(b, where)
		return errors.Join(err, f.Close())
	}
	again := func(path string, make func() error) error { return errors.Join(os.Remove(path), make()) }
	changes := []change{
		{"nothing", false, func(func(string) string) error { return nil }},
		{"a bit of a small file", false, func(at func(string) string) error { return flip(at("file"), 3) }},
		{"a bit among zeros", false, func(at func(string) string) error { return flip(at("a/b/large"), 5) }},
		{"the last bit", false, func(at func(string) string) error { return flip(at("a/b/large"), 3<<20-1) }},
		{"a bit in a hole", false, func(at func(string) string) error { return flip(at("sparse"), 1<<29) }},
		{"the size", false, func(at func(string) string) error { return os.Truncate(at("sparse"), 1<<30+6) }},
		{"the size of an empty one", false, func(at func(string) string) error { return os.Truncate(at("a/empty"), 1) }},
		{"content is moved by a block", false, func(at func(string) string) error {
			b, err := os.ReadFile(at("a/b/large"))
			if err == nil {
				err = os.WriteFile(at("a/b/large"), append(make([]byte, 1<<16), b[:3<<20-1<<16]...), 0o600)
			}
			return err
		}},
		{"the mode of a file", false, func(at func(string) string) error { return os.Chmod(at("file"), 0o645) }},
		{"the mode of the root", false, func(at func(string) string) error { return os.Chmod(at(""), 0o700) }},
		{"set-uid", false, func(at func(string) string) error { return os.Chmod(at("file"), 0o644|os.ModeSetuid) }},
		{"a name", false, func(at func(string) string) error { return os.Rename(at("pipe"), at("pipf")) }},
		{"a level", false, func(at func(string) string) error { return os.Rename(at("a/empty"), at("a/b/empty")) }},
		{"a level up", false, func(at func(string) string) error { return os.Rename(at("a/empty"), at("empty")) }},
		{"a level up, in the same order", false, func(at func(string) string) error { return os.Rename(at("z/zz"), at("zz")) }},
		{"one more", false, func(at func(string) string) error { return os.Mkdir(at("a/c"), 0o755) }},
		{"one less", false, func(at func(string) string) error { return os.Remove(at("a/empty")) }},
		{"a target", false, func(at func(string) string) error {
			return again(at("link"), func() error { return os.Symlink("filf", at("link")) })
		}},
		{"a type", false, func(at func(string) string) error {
			return again(at("pipe"), func() error { return os.WriteFile(at("pipe"), nil, 0o600) })
		}},
		{"a hard link less", false, func(at func(string) string) error {
			return again(at("a/twin"), func() error {
				return errors.Join(os.WriteFile(at("a/twin"), []byte("content"), 0o644), unix.Setxattr(at("a/twin"), "user.one", []byte("1"), 0))
			})
		}},
		{"a hard link more", false, func(at func(string) string) error {
			return again(at("a/empty"), func() error { return os.Link(at("file"), at("a/empty")) })
		}},
		{"the value of an attribute", false, func(at func(string) string) error {
			return unix.Setxattr(at("file"), "user.one", []byte("2"), 0)
		}},
		{"an attribute of a directory less", false, func(at func(string) string) error { return unix.Removexattr(at("a"), "user.two") }},
		{"the name of an attribute", false, func(at func(string) string) error {
			return errors.Join(unix.Removexattr(at("a"), "user.two"), unix.Setxattr(at("a"), "user.twp", []byte("2"), 0))
		}},
		{"an owner", true, func(at func(string) string) error { return os.Lchown(at("link"), 1, 0) }},
		{"a group", true, func(at func(string) string) error { return os.Lchown(at("link"), 0, 1) }},
		{"a whiteout less", true, func(at func(string) string) error { return os.Remove(at("gone")) }},
		{"the number of a device", true, func(at func(string) string) error {
			return again(at("null"), func() error { return unix.Mknod(at("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) })
		}},
		{"a block device", true, func(at func(string) string) error {
			return again(at("null"), func() error { return unix.Mknod(at("null"), unix.S_IFBLK|0o666, int(unix.Mkdev(1, 3))) })
		}},
		{"opaque no more", true, func(at func(string) string) error { return unix.Removexattr(at("a/b"), "trusted.overlay.opaque") }},
		{"an attribute of a link", true, func(at func(string) string) error {
			return unix.Lsetxattr(at("link"), "trusted.x", []byte("y"), 0)
		}},
	}
	old := unix.Umask(0o022)
	defer unix.Umask(old)
	seen := map[[32]byte]string{}
	for _, c := range changes {
		if c.root && os.Geteuid() != 0 {
			t.Logf("%s: left out, only root can do it", c.name)
			continue
		}
		tree := growTree(t)
		if err := c.do(func(name string) string { return filepath.Join(tree, name) }); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		sum := digestOf(t, tree)
		if other, same := seen[sum]; same {
			t.Errorf("%s has the same digest as %s", c.name, other)
		}
		seen[sum] = c.name
	}
}

// TestDigestPlace: what overlayfs notes for itself does not count, nor how many inodes its whiteouts are.
func TestDigestPlace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes whiteouts")
	}
	one, two := growTree(t), growTree(t)
	must(t, unix.Setxattr(filepath.Join(two, "a/b"), "trusted.overlay.origin", []byte("other"), 0))
	must(t, unix.Setxattr(two, "trusted.overlay.impure", []byte("y"), 0))
	must(t, unix.Mknod(filepath.Join(one, "gone too"), unix.S_IFCHR, 0))
	must(t, os.Link(filepath.Join(two, "gone"), filepath.Join(two, "gone too")))
	if a, b := digestOf(t, one), digestOf(t, two); a != b {
		t.Errorf("%x and %x", a, b)
	}
}

// TestDigestDeep: a tree deeper than files can be open, and whose path is longer than a path can be.
func TestDigestDeep(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "tree")
	must(t, os.Mkdir(tree, 0o700))
	fd, err := unix.Open(tree, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range 5000 {
		must(t, unix.Mkdirat(fd, "d", 0o700))
		next, err := unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = next
	}
	before := digestOf(t, tree)
	must(t, unix.Mknodat(fd, "bottom", unix.S_IFREG|0o600, 0))
	must(t, unix.Close(fd))
	if digestOf(t, tree) == before {
		t.Error("a file at the bottom makes no difference")
	}
	must(t, fstree.Remove(context.Background(), tree))
}

func TestDigestEnds(t *testing.T) {
	tree := growTree(t)
	ctx, cancel := context.WithCancel(context.Background())
	read, stop := int64(0), errors.New("enough")
	_, err := fstree.Digest(ctx, tree, fstree.DigestOptions{Read: func(n int64) error { read += n; return nil }})
	must(t, err)
	if read < 3<<20 || read > 6<<20 {
		t.Errorf("%d bytes were read", read)
	}
	left := 3
	_, err = fstree.Digest(ctx, tree, fstree.DigestOptions{Read: func(int64) error {
		if left--; left == 0 {
			return stop
		}
		return nil
	}})
	if !errors.Is(err, stop) {
		t.Errorf("stopped: %v", err)
	}
	cancel()
	if _, err := fstree.Digest(ctx, tree, fstree.DigestOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	ctx = context.Background()
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(tree, link))
	if _, err := fstree.Digest(ctx, link, fstree.DigestOptions{}); err == nil {
		t.Error("a symbolic link was followed")
	}
	if _, err := fstree.DigestFile(ctx, filepath.Join(tree, "link"), fstree.DigestOptions{}); err == nil {
		t.Error("a symbolic link to a file was followed")
	}
	if _, err := fstree.DigestFile(ctx, filepath.Join(tree, "pipe"), fstree.DigestOptions{}); err == nil {
		t.Error("a pipe has a digest")
	}
	_, err = fstree.Digest(ctx, filepath.Join(tree, "none"), fstree.DigestOptions{})
	if !errors.Is(err, os.ErrNotExist) || !fstree.IsGone(err) {
		t.Errorf("of nothing: %v", err)
	}
}
