package layer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/layer"
)

var ctx = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var stamp = time.Unix(1_700_000_000, 123456789)

// tree makes a tree: a name ending in a slash is a directory, content "-> X" a symbolic link to X, content "= X" another
// name of the file X.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		name, content, _ := strings.Cut(f, ":")
		path := filepath.Join(dir, name)
		switch target, isLink := strings.CutPrefix(content, "-> "); {
		case strings.HasSuffix(name, "/"):
			must(t, os.MkdirAll(path, 0o755))
		case isLink:
			must(t, os.Symlink(target, path))
		case strings.HasPrefix(content, "= "):
			must(t, os.Link(filepath.Join(dir, content[2:]), path))
		default:
			must(t, os.WriteFile(path, []byte(content), 0o644))
		}
	}
	still(t, dir)
	return dir
}

// still gives all that is in a tree the same time.
func still(t *testing.T, dir string) {
	t.Helper()
	must(t, filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		ts := unix.NsecToTimespec(stamp.UnixNano())
		return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	}))
}

func changes(t *testing.T, lower, upper string) (list []string) {
	t.Helper()
	must(t, layer.Compare(ctx, lower, upper, func(c layer.Change) error {
		list = append(list, fmt.Sprintf("%s%s %d", map[layer.Kind]string{layer.Added: "+", layer.Modified: "!", layer.Removed: "-"}[c.Kind], c.Path, c.Differs))
		return nil
	}))
	return list
}

// entries are those of a layer, a line for each.
func entries(t *testing.T, lower, upper string) (list []string) {
	t.Helper()
	var b, again bytes.Buffer
	must(t, layer.Write(ctx, &b, lower, upper))
	must(t, layer.Write(ctx, &again, lower, upper))
	if !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Error("the same trees give another archive")
	}
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if err == io.EOF {
			return list
		}
		must(t, err)
		data, err := io.ReadAll(r)
		must(t, err)
		line := fmt.Sprintf("%c %s", h.Typeflag, h.Name)
		if h.Linkname != "" {
			line += " -> " + h.Linkname
		}
		if len(data) > 0 {
			line += " " + string(data)
		}
		if v, ok := h.PAXRecords["SCHILY.xattr.user.x"]; ok {
			line += " x=" + v
		}
		if !strings.Contains(h.Name, ".wh.") && !h.ModTime.Equal(stamp) {
			line += " at " + h.ModTime.String()
		}
		if !h.AccessTime.IsZero() || !h.ChangeTime.IsZero() || h.Uname != "" {
			line += " with more than it should"
		}
		list = append(list, line)
	}
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n  %s\nwant:\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestChanges(t *testing.T) {
	lower := tree(t, "gone/", "gone/below:x", "kept/", "kept/a:a", "kept/b:b", "link:-> kept/a", "type/", "type/below:x", "was:file", "same:same")
	upper := tree(t, "kept/", "kept/a:A", "kept/b:b", "kept/c:c", "link:-> kept/b", "type:now a file", "was/", "was/new:n", "same:same")
	must(t, os.Chmod(filepath.Join(upper, "kept/b"), 0o4755))
	still(t, upper)
	mode, content, kind := int(layer.DiffersMode), int(layer.DiffersContent), int(layer.DiffersType)
	equal(t, "changes", changes(t, lower, upper), []string{
		"-gone 0", fmt.Sprintf("!kept/a %d", content), fmt.Sprintf("!kept/b %d", mode), "+kept/c 0",
		fmt.Sprintf("!link %d", content), fmt.Sprintf("!type %d", kind|mode), fmt.Sprintf("!was %d", kind|mode), "+was/new 0",
	})
	equal(t, "layer", entries(t, lower, upper), []string{
		"5 ./", "0 .wh.gone", "5 kept/", "0 kept/a A", "0 kept/b b", "0 kept/c c", "2 link -> kept/b", "0 type now a file", "5 was/", "0 was/new n",
	})
	equal(t, "nothing", changes(t, lower, lower), nil)
	equal(t, "layer of nothing", entries(t, lower, lower), nil)
	equal(t, "whole tree", entries(t, "", upper), []string{
		"5 ./", "5 kept/", "0 kept/a A", "0 kept/b b", "0 kept/c c", "2 link -> kept/b", "0 same same", "0 type now a file", "5 was/", "0 was/new n",
	})
}

// TestSameTimes: builds that are to be reproducible give all files the same time, so size and time do not tell.
func TestSameTimes(t *testing.T) {
	lower, upper := tree(t, "a:one"), tree(t, "a:two")
	equal(t, "changes", changes(t, lower, upper), []string{fmt.Sprintf("!a %d", layer.DiffersContent)})
	must(t, os.Chtimes(filepath.Join(upper, "."), stamp, stamp.Add(1)))
	if list := changes(t, lower, upper); list[0] != fmt.Sprintf("!. %d", layer.DiffersTime) {
		t.Errorf("the time of the root: %q", list)
	}
}

func TestHardLinks(t *testing.T) {
	lower := tree(t, "a:x", "b:= a", "c:x")
	links := int(layer.DiffersLinks)
	upper := tree(t, "a:x", "b:= a", "c:x", "d:= a") // one more name: the others are written with it
	equal(t, "one more", changes(t, lower, upper), []string{"+d 0"})
	equal(t, "layer", entries(t, lower, upper), []string{"5 ./", "0 a x", "1 b -> a", "1 d -> a"})
	upper = tree(t, "a:x", "b:x", "c:x") // it is two files now
	equal(t, "parted", changes(t, lower, upper), []string{fmt.Sprintf("!b %d", links)})
	equal(t, "layer", entries(t, lower, upper), []string{"5 ./", "0 b x"})
	upper = tree(t, "a:x", "b:= a", "c:= a") // three names of one
	equal(t, "joined", changes(t, lower, upper), []string{fmt.Sprintf("!c %d", links)})
	equal(t, "layer", entries(t, lower, upper), []string{"5 ./", "0 a x", "1 b -> a", "1 c -> a"})
	upper = tree(t, "b:x", "c:x") // the first name is gone
	equal(t, "one less", changes(t, lower, upper), []string{"-a 0"})
}

func TestAttributes(t *testing.T) {
	lower, upper := tree(t, "a:x", "d/"), tree(t, "a:x", "d/")
	for name, value := range map[string]string{"user.x": "1", "user.overlay.opaque": "y"} {
		if err := unix.Setxattr(filepath.Join(upper, "a"), name, []byte(value), 0); err != nil {
			t.Skip("the file system has no extended attributes of users: ", err)
		}
	}
	must(t, unix.Setxattr(filepath.Join(upper, "d"), "user.overlay.opaque", []byte("y"), 0))
	equal(t, "changes", changes(t, lower, upper), []string{fmt.Sprintf("!a %d", layer.DiffersXattrs)})
	equal(t, "layer", entries(t, lower, upper), []string{"5 ./", "0 a x x=1"})
}

// TestOddFiles: sockets and whiteouts of overlayfs are no part of a layer, and a pipe is not opened.
func TestOddFiles(t *testing.T) {
	lower, upper := tree(t, "socket:was a file"), tree(t, "a:x")
	t.Chdir(upper) // the path of a socket must be short
	l, err := net.Listen("unix", "socket")
	must(t, err)
	defer l.Close()
	must(t, unix.Mkfifo("pipe", 0o644))
	if os.Geteuid() == 0 {
		must(t, unix.Mknod("whiteout", unix.S_IFCHR, 0))
	}
	still(t, upper)
	equal(t, "layer", entries(t, lower, upper), []string{"5 ./", "0 a x", "6 pipe", "0 .wh.socket"})
}

func TestNames(t *testing.T) {
	upper := tree(t, "a\xff\n b:x", strings.Repeat("n", 200)+":y")
	equal(t, "odd names", entries(t, "", upper), []string{"5 ./", "0 a\xff\n b x", "0 " + strings.Repeat("n", 200) + " y"})
	for _, files := range [][]string{{".wh.x:"}, {"d/", "d/.wh..wh..opq:"}} {
		if err := layer.Write(ctx, io.Discard, "", tree(t, files...)); !errors.Is(err, layer.ErrName) {
			t.Errorf("%q: %v", files, err)
		}
	}
	deep := t.TempDir()
	fd, err := unix.Open(deep, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range 30 {
		must(t, unix.Mkdirat(fd, strings.Repeat("d", 200), 0o755))
		next, err := unix.Openat(fd, strings.Repeat("d", 200), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = next
	}
	must(t, unix.Close(fd))
	if err := layer.Write(ctx, io.Discard, "", deep); !errors.Is(err, layer.ErrName) || len(err.Error()) > 1000 {
		t.Errorf("a path that is too long: %v", err)
	}
}

func TestEnds(t *testing.T) {
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	upper := tree(t, "a:x")
	if err := layer.Write(canceled, io.Discard, "", upper); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	stop := errors.New("stop")
	if err := layer.Compare(ctx, "", upper, func(layer.Change) error { return stop }); err != stop {
		t.Errorf("the error of the function: %v", err)
	}
	if err := layer.Compare(ctx, upper, filepath.Join(upper, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no tree: %v", err)
	}
}
