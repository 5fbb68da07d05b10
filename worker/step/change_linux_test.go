package step

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var when = time.Unix(1000000000, 5)

// writeOld makes a file with a time, and what is missing of its path.
func writeOld(t testing.TB, name, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must(t, os.WriteFile(name, []byte(text), 0o644))
	must(t, os.Chtimes(name, when, when))
}

// diff lists the changes of one directory to another; before "" is an empty tree.
func diff(t testing.TB, before, after string) (list []string) {
	t.Helper()
	must(t, changes(context.Background(), before, after, func(c Change) error {
		list = append(list, strings.ToUpper(c.Kind[:1])+" "+c.Path)
		return nil
	}))
	return list
}

// TestChanges: each kind of change, and nothing else, whether files are the same, links to each other, or copies.
func TestChanges(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, d := range []string{a, b} {
		for _, f := range []string{"same", "size", "content", "time", "mode", "xattr", "to-dir/x", "gone", "gone-dir/x/y", "deep/er/x", "deep/same", "zz", "dir-mode/x"} {
			writeOld(t, filepath.Join(d, f), "text of "+f)
		}
		must(t, os.Mkdir(filepath.Join(d, "to-file"), 0o755))
		writeOld(t, filepath.Join(d, "to-file/in"), "")
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
	writeOld(t, filepath.Join(b, "size"), "longer than the text of size")
	writeOld(t, filepath.Join(b, "content"), "tExt of content")
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
	writeOld(t, filepath.Join(b, "to-file"), "")
	must(t, os.RemoveAll(filepath.Join(b, "to-dir")))
	writeOld(t, filepath.Join(b, "to-dir/x/y"), "")
	writeOld(t, filepath.Join(b, "deep/er/new"), "")
	writeOld(t, filepath.Join(b, "new/in"), "")
	must(t, os.Remove(filepath.Join(b, "link")))
	must(t, os.Symlink("nowhart", filepath.Join(b, "link")))
	writeOld(t, filepath.Join(b, "name\nwith newline"), "")
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
