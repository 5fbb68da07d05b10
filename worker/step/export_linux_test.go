package step

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/btrfs"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/erofs"
	"holdfast/worker/snapshot/driver/overlay"
	"holdfast/worker/snapshot/drivertest"
)

// TestExportTar: an archive has what a snapshot has, and no link leads out of it.
func TestExportTar(t *testing.T) {
	s := newStand(t, Options{})
	outside := s.dir + "/outside"
	write(t, outside, "of the host")
	res := s.ok(sh("base", "mkdir -p /d/e; echo text >/d/f; chmod 4711 /d/f; ln /d/f /d/g; ln -s "+outside+" /d/out; ln -s /d /to; ln -s "+s.dir+" /away; mknod /d/p p; touch '/d/a b'"))
	list := func(source string) (entries []string) {
		t.Helper()
		var b bytes.Buffer
		must(t, s.ExportTar(s.ctx, res.Snapshot, source, &b))
		for r := tar.NewReader(&b); ; {
			h, err := r.Next()
			if err == io.EOF {
				return entries
			}
			must(t, err)
			text, err := io.ReadAll(r)
			must(t, err)
			entries = append(entries, fmt.Sprintf("%c %s %o %d %s %q", h.Typeflag, h.Name, h.Mode, h.Uid, h.Linkname, text))
		}
	}
	want := []string{`5 d/ 755 0  ""`, `0 d/a b 644 0  ""`, `5 d/e/ 755 0  ""`, `0 d/f 4711 0  "text\n"`, `1 d/g 4711 0 d/f ""`, `2 d/out 777 0 ` + outside + ` ""`, `6 d/p 644 0  ""`}
	if got := list("/d"); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := list("/to"); len(got) != len(want) || !strings.HasPrefix(got[0], "5 to/") {
		t.Errorf("%q", got)
	}
	if got := list("/d/../d/f"); !slices.Equal(got, []string{`0 f 4711 0  "text\n"`}) {
		t.Errorf("%q", got)
	}
	if got := list("/"); !strings.HasPrefix(got[0], "5 ./ ") || !slices.ContainsFunc(got, func(e string) bool { return strings.HasPrefix(e, "0 d/f ") }) {
		t.Errorf("%q", got)
	}
	for _, bad := range []string{"/none", "/d/out", "/away/outside", "/d/f/x"} {
		if err := s.ExportTar(s.ctx, res.Snapshot, bad, io.Discard); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
	if err := s.ExportTar(s.ctx, res.Snapshot, "/d", brokenWriter{}); !errors.Is(err, unix.EPIPE) {
		t.Error(err)
	}
	s.clean()
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, unix.EPIPE }

// TestDiff: what a step has changed, with every driver the same.
func TestDiff(t *testing.T) {
	for name, d := range map[string]snapshot.Driver{"overlay": overlay.New("volatile"), "copy": copy.New(), "erofs": erofs.New(), "btrfs": btrfs.New()} {
		t.Run(name, func(t *testing.T) {
			needRoot(t)
			s := &stand{TB: t, ctx: contextOf(t), dir: t.TempDir()}
			s.prepare()
			s.driver = d
			must(t, os.Mkdir(s.root(), 0o700))
			if name == "btrfs" {
				drivertest.Filesystem(t, name, s.root())
			}
			s.open()
			t.Cleanup(s.close)
			s.busybox("base")
			first := s.ok(sh("base", "mkdir -p /a/b /gone/x /moved; echo one >/a/b/f; echo two >/a/g; touch -d @1000 /a/b/f /a/g; echo x >/gone/x/y; mkdir /opaque; echo 1 >/opaque/1"))
			next := s.ok(sh(first.Snapshot, "echo owt >/a/b/f; touch -d @1000 /a/b/f; chmod 600 /a/g; rm -r /gone; mv /moved /new; rm -r /opaque; mkdir /opaque; echo 2 >/opaque/2; ln -s x /link; cat /bin/busybox >/tmp/busybox"))
			changes := func(before, after string) (list []string) {
				t.Helper()
				must(t, s.Diff(s.ctx, before, after, func(c Change) error {
					list = append(list, c.Kind[:1]+" "+c.Path)
					return nil
				}))
				return list
			}
			want := []string{"c /a", "c /a/b", "c /a/b/f", "c /a/g", "d /gone", "a /link", "d /moved", "a /new", "c /opaque", "d /opaque/1", "a /opaque/2", "c /tmp", "a /tmp/busybox"}
			if got := changes(first.Snapshot, next.Snapshot); !slices.Equal(got, want) {
				t.Errorf("%q", got)
			}
			if got := changes(next.Snapshot, next.Snapshot); len(got) > 0 {
				t.Errorf("of itself: %q", got)
			}
			if got := changes("", "base"); !slices.Contains(got, "a /bin/busybox") || slices.ContainsFunc(got, func(c string) bool { return c[0] != 'a' }) {
				t.Errorf("of nothing: %q", got)
			}
			stop := errors.New("stop")
			if err := s.Diff(s.ctx, "base", next.Snapshot, func(Change) error { return stop }); !errors.Is(err, stop) {
				t.Error(err)
			}
			if err := s.Diff(s.ctx, "none", next.Snapshot, nil); !errors.Is(err, snapshot.ErrNotFound) {
				t.Error(err)
			}
			if r, err := s.Check(s.ctx); err != nil || len(r.Problems) > 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}
