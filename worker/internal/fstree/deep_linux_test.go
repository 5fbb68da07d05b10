package fstree_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/fstree"
)

// few has the test open few files at once.
func few(t *testing.T) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
}

// deep makes a tree of so many levels, with a file in the deepest, and another with a name there and one at the top.
func deep(t *testing.T, top string, levels int) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.Mkdir(top, 0o755))
	t.Cleanup(func() { check(fstree.Remove(context.Background(), top)) })
	check(os.WriteFile(filepath.Join(top, "both"), []byte("both"), 0o600))
	fd, err := unix.Open(top, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	check(err)
	above := fd
	for range levels {
		check(unix.Mkdirat(fd, "d", 0o755))
		next, err := unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		check(err)
		if fd != above {
			check(unix.Close(fd))
		}
		fd = next
	}
	check(unix.Linkat(above, "both", fd, "again", 0))
	file, err := unix.Openat(fd, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o640)
	check(err)
	check(unix.Close(file))
	check(unix.Symlinkat("file", fd, "link"))
	check(unix.Close(fd))
	check(unix.Close(above))
}

// TestDeep: a tree of 50,000 levels (here fewer) took an open directory for each when it was measured, as a
// commit does, and could not be copied, since below some 2,000 its paths are longer than the kernel takes.
func TestDeep(t *testing.T) {
	few(t)
	const levels = 8_000
	ctx := context.Background()
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	deep(t, from, levels)
	u, err := fstree.Measure(ctx, from)
	if err != nil || u.Inodes != levels+4 {
		t.Fatalf("%+v, %v", u, err)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fstree.Remove(ctx, to) })
	if err := fstree.Copy(ctx, from, to); err != nil {
		t.Fatal(err)
	}
	copied, err := fstree.Measure(ctx, to)
	if err != nil || copied != u {
		t.Errorf("copied is %+v, %v; from %+v", copied, err, u)
	}
	same(t, from, to)
}

// same fails unless two trees have the same digest.
func same(t *testing.T, from, to string) {
	t.Helper()
	ctx := context.Background()
	a, errA := fstree.Digest(ctx, from, fstree.DigestOptions{})
	b, errB := fstree.Digest(ctx, to, fstree.DigestOptions{})
	if errA != nil || errB != nil || a != b {
		t.Errorf("digests %x, %v and %x, %v", a, errA, b, errB)
	}
}

// TestCopyLinks: files with several names, in all directories of a tree, some of which have names elsewhere
// too, and one with as many as the file system allows; directories keep their times, and nothing that helps
// stays.
func TestCopyLinks(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	old := time.Unix(1_000_000_000, 123456789)
	check(os.Mkdir(to, 0o700))
	for i := range 5 {
		sub := filepath.Join(from, strings.Repeat("d/", i))
		check(os.MkdirAll(sub, 0o755))
		check(os.WriteFile(filepath.Join(sub, fmt.Sprint("of", i)), []byte{byte(i)}, 0o600))
		for j := range i {
			check(os.Link(filepath.Join(from, strings.Repeat("d/", j), fmt.Sprint("of", j)), filepath.Join(sub, fmt.Sprint("of", j))))
		}
	}
	check(os.Link(filepath.Join(from, "of0"), filepath.Join(dir, "outside")))
	check(os.WriteFile(filepath.Join(from, "most"), nil, 0o600))
	most := 1
	for ; most < 70_000; most++ {
		err := os.Link(filepath.Join(from, "most"), filepath.Join(from, fmt.Sprint("most", most)))
		if err != nil {
			if !strings.Contains(err.Error(), "too many links") {
				t.Fatal(err)
			}
			break
		}
	}
	for i := 4; i >= 0; i-- {
		check(os.Chtimes(filepath.Join(from, strings.Repeat("d/", i)), old, old))
	}
	check(fstree.Copy(context.Background(), from, to))
	same(t, from, to)
	for i := range 5 {
		info, err := os.Stat(filepath.Join(to, strings.Repeat("d/", i)))
		if err != nil || !info.ModTime().Equal(old) {
			t.Errorf("level %d: %v, %v", i, info.ModTime(), err)
		}
	}
	t.Logf("%d names", most)
}

// TestMeasureWhileMoved: what is measured can be a step's that moves directories meanwhile; it ends, with
// what was found.
func TestMeasureWhileMoved(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "from")
	deep(t, from, 200)
	if err := os.Mkdir(filepath.Join(from, "e"), 0o755); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(from, strings.Repeat("d/", 100))
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_ = os.Rename(inside, filepath.Join(from, "e", "moved"))
			_ = os.Rename(filepath.Join(from, "e", "moved"), inside)
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for range 300 {
		if u, err := fstree.Measure(context.Background(), from); err != nil || u.Inodes < 100 || u.Inodes > 2*205 {
			t.Fatalf("%+v, %v", u, err)
		}
	}
	close(stop)
	<-ended
	if u, err := fstree.Measure(context.Background(), from); err != nil || u.Inodes != 205 {
		t.Errorf("%+v, %v", u, err)
	}
}
