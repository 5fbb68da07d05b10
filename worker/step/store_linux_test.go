package step

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// bind shows a directory at another path, which is made, for the rest of a test.
func bind(t testing.TB, dir, at string) {
	t.Helper()
	must(t, os.MkdirAll(at, 0o755))
	must(t, unix.Mount(dir, at, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(at, unix.MNT_DETACH)) })
}

// TestStoreBelowSource: a store that was mounted below a source was given to the step, which could write to it: only
// the path of the source itself was looked at, and mounts are cloned with what is mounted below them.
func TestStoreBelowSource(t *testing.T) {
	s := newStand(t, Options{})
	outer := filepath.Join(s.dir, "outer")
	for name, dir := range map[string]string{
		"the store": s.root(), "in it": filepath.Join(s.root(), "snapshots"), "above": s.dir, "beside": t.TempDir(),
	} {
		source := filepath.Join(s.dir, "sources", name)
		if name == "above" { // which is not to have itself
			source = filepath.Join(t.TempDir(), name)
		}
		bind(t, dir, filepath.Join(source, "x"))
		want := ErrInvalid
		if name == "beside" {
			want = nil
		}
		step := sh("base", "true")
		step.Mounts = []Mount{{Source: source, Target: "/s"}}
		if _, err := s.Run(s.ctx, step, nil); !errors.Is(err, want) {
			t.Errorf("%s, mounted: %v", name, err)
		}
		step.Mounts[0].ReadOnly = true
		if _, err := s.Run(s.ctx, step, nil); !errors.Is(err, want) {
			t.Errorf("%s, mounted to be read: %v", name, err)
		}
		step.Mounts, step.Copies = nil, []Copy{{Source: source, Target: "/s"}}
		if _, err := s.Run(s.ctx, step, nil); !errors.Is(err, want) {
			t.Errorf("%s, copied: %v", name, err)
		}
	}
	// What is in the store was not recognized at another path either.
	bind(t, filepath.Join(s.root(), "snapshots"), outer)
	if err := s.outsideStore(outer); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// TestOutputIntoStore: an output replaced the metadata of the store, with exit code 0, and the store was lost. Another
// replaced a device node by a regular file.
func TestOutputIntoStore(t *testing.T) {
	s := newStand(t, Options{})
	res := s.ok(sh("base", "mkdir -p /d/store /n; echo x >/d/store/metadata.db; echo x >/f; echo x >/n/node"))
	link, mounted, outer := filepath.Join(s.dir, "link"), filepath.Join(t.TempDir(), "mounted"), filepath.Join(t.TempDir(), "outer")
	must(t, os.Symlink(s.root(), link))
	bind(t, filepath.Join(s.root(), "snapshots"), mounted)
	bind(t, s.root(), filepath.Join(outer, "x"))
	node := filepath.Join(s.dir, "nodes", "node")
	must(t, os.Mkdir(filepath.Dir(node), 0o755))
	must(t, unix.Mknod(node, unix.S_IFIFO|0o600, 0))
	for _, c := range []struct {
		source, dest, says string
		before             bool // it is known before the step runs
	}{
		{"/f", filepath.Join(s.root(), "metadata.db"), "metadata.db is in the store", true},
		{"/f", filepath.Join(s.root(), "snapshots", "new", "out"), "is in the store", true},
		{"/f", s.root(), "is in the store", true},
		{"/f", s.root() + "/", "is in the store", true},
		{"/f", filepath.Join(link, "metadata.db"), "is in the store", true},
		{"/f", filepath.Join(mounted, "out"), "is in the store", true},
		{"/d", filepath.Join(outer, "x"), "is in the store", true},
		{"/d", outer, "is mounted at", true},
		{"/d", s.dir, "into which some of the output would go", false},
		{"/f", node, "node is a device, FIFO or socket", true},
		{"/n/node", filepath.Dir(node), "node is a device, FIFO or socket", false},
		{"/n", filepath.Dir(node), "node: is not a regular file", false},
	} {
		if err := s.CheckOutput(c.source, c.dest); (err != nil) != c.before || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s to %s, before the step: %v", c.source, c.dest, err)
		}
		if err := s.Export(s.ctx, res.Snapshot, c.source, c.dest); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s to %s: %v", c.source, c.dest, err)
		}
	}
	if info, err := os.Stat(filepath.Join(s.root(), "metadata.db")); err != nil || info.Size() < 4096 {
		t.Errorf("metadata.db was replaced: %v", err)
	}
	if info, err := os.Lstat(node); err != nil || info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
	for _, dest := range []string{"new/file", "file", "file"} { // the last takes the place of the one before
		dest = filepath.Join(s.dir, "out", dest)
		must(t, errors.Join(s.CheckOutput("/f", dest), s.Export(s.ctx, res.Snapshot, "/f", dest)))
	}
	problems, err := s.store.Check(s.ctx)
	must(t, err)
	for _, p := range problems {
		t.Error(p)
	}
}
