package step

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast"
)

// On a full disk a step had run and was committed, and its result could not be written down, though the store had
// a file that it gives up for that.
func TestResultsOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a tmpfs")
	}
	dir := t.TempDir()
	must(t, unix.Mount("full", dir, "tmpfs", 0, "size=1m"))
	defer func() { must(t, unix.Unmount(dir, 0)) }()
	r, err := openResults(dir, holdfast.Full, "", nil)
	must(t, err)
	emergency := filepath.Join(dir, "emergency")
	f, err := os.Create(emergency)
	must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	must(t, f.Close())
	id, out := ID{1}, make([]byte, 200<<10)
	for i := range out {
		out[i] = byte(i * i >> 8)
	}
	if err := r.put(id, &record{snapshot: id.Snapshot()}, out); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("there is room: %v", err)
	}
	asked := 0
	r.full = func() bool {
		asked++
		return os.Remove(emergency) == nil
	}
	must(t, r.put(id, &record{snapshot: id.Snapshot()}, out))
	if _, got, err := r.get(id); err != nil || len(got) != len(out) || asked != 1 {
		t.Errorf("%d bytes, %v, asked %d times", len(got), err, asked)
	}
	must(t, r.close())
}

// standOn is a stand whose store is on a tmpfs with options.
func standOn(t *testing.T, options string) *stand {
	t.Helper()
	needRoot(t)
	s := &stand{TB: t, ctx: contextOf(t), dir: t.TempDir()}
	must(t, os.Mkdir(s.root(), 0o755))
	must(t, unix.Mount("full", s.root(), "tmpfs", 0, options))
	t.Cleanup(func() { must(t, unix.Unmount(s.root(), unix.MNT_DETACH)) })
	s.prepare()
	s.open()
	t.Cleanup(s.close)
	return s
}

// TestUncachedOnAFullDisk: what a command left that went on when the disk had refused it something was a hit later,
// also when there was room again.
func TestUncachedOnAFullDisk(t *testing.T) {
	for name, c := range map[string]struct{ options, script string }{
		"bytes":  {"size=32m", "dd if=/dev/zero of=/data bs=65536 count=800 2>/dev/null; stat -c %s /data"},
		"inodes": {"size=64m,nr_inodes=250", "i=0; while [ $i -lt 400 ]; do touch /$i 2>/dev/null || break; i=$((i+1)); done; echo $i"},
	} {
		t.Run(name, func(t *testing.T) {
			s := standOn(t, c.options)
			s.busybox("base")
			step := sh("base", c.script)
			full := s.ok(step)
			if !strings.Contains(full.Uncached, "the disk of the store was full") {
				t.Errorf("%+v: %q", full, full.Output)
			}
			must(t, s.namespace.Remove(s.ctx, full.Snapshot))
			must(t, s.store.Cleanup(s.ctx))
			must(t, unix.Mount("full", s.root(), "tmpfs", unix.MS_REMOUNT, "size=128m,nr_inodes=2000"))
			for _, hit := range []bool{false, true} {
				if res := s.ok(step); res.Hit != hit || res.Uncached != "" || string(res.Output) == string(full.Output) {
					t.Errorf("with room: %+v: %q", res, res.Output)
				}
			}
		})
	}
}
