package remotecache_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"holdfast/worker/image"
	"holdfast/worker/registry"
	"holdfast/worker/remotecache"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// TestTrickle: a registry that sent a little more of a layer than nothing kept a step waiting for as long as the whole
// layer, of any size that it said, would have taken: for a day.
func TestTrickle(t *testing.T) {
	s := exported(t, nil)
	st := s.statement(t)
	st.Layer.Size = 1 << 30
	b, err := json.Marshal(st)
	must(t, err)
	s.change(func(m *v1.Manifest) { m.Config.Digest, m.Config.Size = digest.FromBytes(b), int64(len(b)) }, map[digest.Digest][]byte{digest.FromBytes(b): b})
	changed := s.bad
	s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !strings.HasSuffix(r.URL.Path, st.Layer.Digest.String()) {
			changed(w, r, next)
			return
		}
		w.Header().Set("Content-Length", "1073741824")
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
			w.(http.Flusher).Flush()
			time.Sleep(100 * time.Millisecond)
		}
	})
	w := newWorker(t, s, func(o *remotecache.Options) {
		o.Repositories[0].Trusted, o.Repositories[0].Unsigned, o.FillTime, o.Pause = nil, true, 300*time.Millisecond, time.Hour
	})
	if _, err := w.fetch("a", "base", "file"); !errors.Is(err, registry.ErrStalled) {
		t.Errorf("%v", err)
	}
	if f := w.Figures()[0]; !f.Paused || f.Failed != 1 {
		t.Errorf("%+v", f)
	}
}

// TestSlowAnswers: a registry that took almost the time that it had to say that it has no result, or a bad one, did so for
// each step, and was never left alone.
func TestSlowAnswers(t *testing.T) {
	s := exported(t, nil)
	for _, code := range []int{http.StatusNotFound, http.StatusOK} {
		w := newWorker(t, s, func(o *remotecache.Options) { o.FindTime, o.Pause = 2*time.Second, time.Hour })
		s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, "/manifests/") {
				time.Sleep(600 * time.Millisecond)
				w.WriteHeader(code)
				return
			}
			next.ServeHTTP(w, r)
		})
		if found, _ := w.Find(ctx, idOf("a"), "content of the base"); found != nil {
			t.Errorf("%d: %+v", code, found)
		}
		if f := w.Figures()[0]; !f.Paused {
			t.Errorf("%d: %+v", code, f)
		}
	}
}

// TestSlowStorage: a registry that needs longer than Client.Stall to store what it has got of a large layer was never
// exported to: that is the time for which steps wait, and nothing waits for exports.
func TestSlowStorage(t *testing.T) {
	s := serve(t)
	s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPut {
			time.Sleep(2500 * time.Millisecond)
		}
		next.ServeHTTP(w, r)
	})
	w := newWorker(t, s, nil) // with a Stall of a second
	w.result("a", "base", "file")
	w.start()
	w.drain()
	if f := w.Figures()[0]; f.Exported != 1 || f.ExportFailed != 0 {
		t.Errorf("%+v", f)
	}
}

// TestRoom: a layer that shrinks well was extracted until the disk of the store was full, and all steps that ran failed.
func TestRoom(t *testing.T) {
	s := serve(t)
	big := newWorker(t, s, nil)
	m, err := big.names.Prepare(ctx, "making", "base")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(m[0].Source, "file"), bytes.Repeat([]byte("0123456789abcdef"), 2<<20), 0o644))
	must(t, big.names.Commit(ctx, idOf("a").Snapshot(), "making", snapshot.WithLabels(map[string]string{step.LabelVersion: "2", step.LabelExport: step.ExportPending})))
	big.start()
	big.drain()
	dir := t.TempDir()
	if err := unix.Mount("test", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("left out: a small file system needs root: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	w := newWorkerIn(t, dir, s, nil)
	if _, err := w.fetch("a", "base", "file"); !errors.Is(err, image.ErrLimit) {
		t.Errorf("%v", err)
	}
	left, err := os.ReadDir(w.downloads())
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
