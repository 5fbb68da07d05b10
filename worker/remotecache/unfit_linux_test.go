package remotecache_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/remotecache"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// TestUnfit: a result with a socket was exported without it, so another worker took one for it that had other files, and
// what stood on it was a change of those. What no worker could extract, such as a device, an access list, or 64 GiB of zeros in a
// sparse file, was compressed and sent all the same; and a name that an archive cannot have was tried five times an hour for
// ever, with all that stood on it.
func TestUnfit(t *testing.T) {
	list := map[string]func(dir string) error{
		"socket": func(dir string) error { return unix.Mknod(filepath.Join(dir, "s"), unix.S_IFSOCK|0o600, 0) },
		"device": func(dir string) error {
			return unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
		},
		"whiteout":  func(dir string) error { return os.WriteFile(filepath.Join(dir, ".wh.x"), nil, 0o600) },
		"attribute": func(dir string) error { return unix.Setxattr(dir, "user.a=b", []byte("x"), 0) },
		"trusted":   func(dir string) error { return unix.Setxattr(dir, "trusted.a", []byte("x"), 0) },
		"capability of a directory": func(dir string) error {
			return unix.Setxattr(dir, "security.capability", []byte("\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0)
		},
		"huge": func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "huge"), nil, 0o600), os.Truncate(filepath.Join(dir, "huge"), 1<<40))
		},
		"zeros": func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "zeros"), nil, 0o600), os.Truncate(filepath.Join(dir, "zeros"), 1<<30))
		},
	}
	s := serve(t)
	var log bytes.Buffer
	w := newWorker(t, s, func(o *remotecache.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for name, make := range list {
		m, err := w.names.Prepare(ctx, "making", "base")
		must(t, err)
		if err := make(m[0].Source); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		must(t, w.names.Commit(ctx, idOf(name).Snapshot(), "making", snapshot.WithLabels(map[string]string{step.LabelVersion: "2", step.LabelExport: step.ExportPending})))
		w.result("on "+name, idOf(name).Snapshot(), "file")
	}
	w.start()
	w.drain()
	for name := range list {
		for _, one := range []string{name, "on " + name} {
			info, err := w.names.Stat(ctx, idOf(one).Snapshot())
			if err != nil || info.Labels[step.LabelContent] != "" || info.Labels[step.LabelExport] != step.ExportNever {
				t.Errorf("%s: %+v, %v", one, info, err)
			}
		}
	}
	if f := w.Figures()[0]; f.Exported+f.ExportFailed > 0 || s.requests() > 0 {
		t.Errorf("%+v, %d requests", f, s.requests())
	}
	if n := strings.Count(log.String(), "a result is not exported"); n < len(list) || n > 2*len(list) {
		t.Errorf("%d reasons: %s", n, &log)
	}
}
