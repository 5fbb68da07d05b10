package treediff

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var when = time.Unix(1000000000, 5)

// write makes a file with a time, and what is missing of its path.
func write(t testing.TB, name, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must(t, os.WriteFile(name, []byte(text), 0o644))
	must(t, os.Chtimes(name, when, when))
}

// diff lists the changes of one directory to another; before "" is an empty tree.
func diff(t testing.TB, before, after string) (list []string) {
	t.Helper()
	var was *os.File
	if before != "" {
		var err error
		was, err = os.Open(before)
		must(t, err)
		defer was.Close()
	}
	now, err := os.Open(after)
	must(t, err)
	defer now.Close()
	must(t, Walk(context.Background(), was, now, func(c Change) error {
		list = append(list, strings.ToUpper(c.Kind.String()[:1])+" "+c.Path)
		if (c.Before == nil) != (c.Kind == Added) || (c.After == nil) != (c.Kind == Deleted) {
			t.Errorf("%+v", c)
		}
		return nil
	}))
	return list
}

// TestWalk: each kind of change, and nothing else, whether files are the same, links to each other, or copies.
func TestWalk(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, d := range []string{a, b} {
		for _, f := range []string{"same", "size", "content", "time", "mode", "xattr", "to-dir/x", "gone", "gone-dir/x/y", "deep/er/x", "deep/same", "zz", "dir-mode/x"} {
			write(t, filepath.Join(d, f), "text of "+f)
		}
		must(t, os.Mkdir(filepath.Join(d, "to-file"), 0o755))
		write(t, filepath.Join(d, "to-file/in"), "")
		must(t, os.Symlink("target", filepath.Join(d, "link-same")))
		must(t, os.Symlink("nowhere", filepath.Join(d, "link")))
		must(t, unix.Mkfifo(filepath.Join(d, "fifo"), 0o644)) // which must not be opened
		for _, l := range []string{"link-same", "link", "fifo"} {
			spec := unix.NsecToTimespec(when.UnixNano())
			must(t, unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(d, l), []unix.Timespec{spec, spec}, unix.AT_SYMLINK_NOFOLLOW))
		}
	}
	if got := diff(t, a, b); len(got) > 0 {
		t.Fatalf("copies differ: %v", got)
	}
	must(t, os.Remove(filepath.Join(b, "zz")))
	must(t, os.Link(filepath.Join(a, "zz"), filepath.Join(b, "zz")))
	write(t, filepath.Join(b, "size"), "longer than the text of size")
	write(t, filepath.Join(b, "content"), "tExt of content")
	must(t, os.Chtimes(filepath.Join(b, "time"), when, when.Add(1)))
	must(t, os.Chmod(filepath.Join(b, "mode"), 0o600))
	must(t, os.Chmod(filepath.Join(b, "dir-mode"), 0o700))
	if err := unix.Setxattr(filepath.Join(b, "xattr"), "user.x", []byte("x"), 0); err != nil {
		t.Logf("no extended attributes: %v", err)
		must(t, os.Chmod(filepath.Join(b, "xattr"), 0o600))
	}
	must(t, os.Remove(filepath.Join(b, "gone")))
	must(t, os.RemoveAll(filepath.Join(b, "gone-dir")))
	must(t, os.RemoveAll(filepath.Join(b, "to-file")))
	write(t, filepath.Join(b, "to-file"), "")
	must(t, os.RemoveAll(filepath.Join(b, "to-dir")))
	write(t, filepath.Join(b, "to-dir/x/y"), "")
	write(t, filepath.Join(b, "deep/er/new"), "")
	write(t, filepath.Join(b, "new/in"), "")
	must(t, os.Remove(filepath.Join(b, "link")))
	must(t, os.Symlink("nowhart", filepath.Join(b, "link")))
	write(t, filepath.Join(b, "name\nwith newline"), "")
	want := []string{
		"C /content", "C /deep", "C /deep/er", "A /deep/er/new", "C /dir-mode", "D /gone", "D /gone-dir", "C /link", "C /mode", "A /name\nwith newline", "A /new", "A /new/in", "C /size", "C /time",
		"C /to-dir", "C /to-dir/x", "A /to-dir/x/y", "C /to-file", "C /xattr",
	}
	if got := diff(t, a, b); !slices.Equal(got, want) {
		t.Errorf("\n%q\nand not\n%q", got, want)
	}
	if got := diff(t, "", filepath.Join(b, "deep")); !slices.Equal(got, []string{"A /er", "A /er/new", "A /er/x", "A /same"}) {
		t.Errorf("%q", got)
	}
}

// TestWalkEnds: the error of who is told, a context and a tree that is too deep end it.
func TestWalkEnds(t *testing.T) {
	dir := t.TempDir()
	for i := range 10 {
		write(t, filepath.Join(dir, fmt.Sprint(i)), "")
	}
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	stop, n := errors.New("stop"), 0
	err = Walk(context.Background(), nil, f, func(Change) error { n++; return stop })
	if !errors.Is(err, stop) || n != 1 {
		t.Errorf("%v after %d", err, n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	again, err := os.Open(dir)
	must(t, err)
	defer again.Close()
	if err := Walk(ctx, nil, again, func(Change) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	must(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", maxDepth+2)), 0o755))
	deep, err := os.Open(dir)
	must(t, err)
	defer deep.Close()
	if err := Walk(context.Background(), nil, deep, func(Change) error { return nil }); err == nil || !strings.Contains(err.Error(), "deep") {
		t.Error(err)
	}
}
