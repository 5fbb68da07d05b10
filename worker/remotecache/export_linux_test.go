package remotecache_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/worker/image"
	"holdfast/worker/remotecache"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// slowBody is read slowly.
type slowBody struct {
	io.ReadCloser
	stop chan struct{}
}

func (b *slowBody) Read(p []byte) (int, error) {
	select {
	case <-b.stop:
		return 0, io.ErrUnexpectedEOF
	case <-time.After(100 * time.Millisecond):
	}
	return b.ReadCloser.Read(p[:min(len(p), 16<<10)])
}

// TestExportSlow: a registry that takes a little again and again held an export for hours.
func TestExportSlow(t *testing.T) {
	s, stop := serve(t), make(chan struct{})
	t.Cleanup(func() { close(stop) })
	s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		r.Body = &slowBody{r.Body, stop}
		next.ServeHTTP(w, r)
	})
	w := newWorker(t, s, func(o *remotecache.Options) { o.PushTime, o.Client.Stall = 50*time.Millisecond, time.Minute })
	w.PushRate(1 << 30)
	m, err := w.names.Prepare(ctx, "large", "base")
	must(t, err)
	random := make([]byte, 16<<20) // more than sockets take
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	must(t, os.WriteFile(filepath.Join(m[0].Source, "file"), random, 0o644))
	must(t, w.names.Commit(ctx, idOf("large").Snapshot(), "large", snapshot.WithLabels(map[string]string{step.LabelVersion: "2", step.LabelExport: "pending"})))
	w.start()
	w.drain()
	if f := w.Figures()[0]; f.ExportFailed == 0 || f.Exported > 0 {
		t.Errorf("%+v", f)
	}
}

// TestExportOthers: a repository that was gone kept results from those after it.
func TestExportOthers(t *testing.T) {
	s, gone := serve(t), serve(t)
	gone.is(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusForbidden) })
	w := newWorker(t, s, func(o *remotecache.Options) {
		o.Repositories = append([]remotecache.Repository{{Name: gone.repository(), Export: true}}, o.Repositories...)
	})
	w.result("a", "base", "file")
	w.start()
	w.drain()
	if got, err := newWorker(t, s, nil).fetch("a", "base", "file"); err != nil || got == "" {
		t.Errorf("%q, %v", got, err)
	}
	info, err := w.names.Stat(ctx, idOf("a").Snapshot())
	if err != nil || info.Labels[step.LabelExport] == "" || step.ContentOf(info) != "" { // not yet in all
		t.Errorf("%+v, %v", info, err)
	}
}

// TestReplacedWhileRecorded: what a run had printed was exported with the files of the one before it.
func TestReplacedWhileRecorded(t *testing.T) {
	s := serve(t)
	w := newWorker(t, s, nil)
	name := idOf("a").Snapshot()
	w.result("a", "base", "first")
	said := "first"
	w.Start(func(snapshot.Info) (*step.Result, error) {
		if said == "first" {
			said = "second"
			must(t, w.names.Remove(ctx, name))
			w.result("a", "base", "second")
		}
		return &step.Result{Output: []byte(said)}, nil
	})
	w.drain()
	other := newWorker(t, s, nil)
	if got, err := other.fetch("a", "base", "second"); err != nil || got != name+"second" {
		t.Errorf("%q, %v", got, err)
	}
	if f := w.Figures()[0]; f.Exported != 1 {
		t.Errorf("%+v", f)
	}
}

// TestShowsAnother: what is shown of a snapshot that was replaced is not exported as that.
func TestShowsAnother(t *testing.T) {
	w := newWorker(t, serve(t), nil)
	w.commit("one", "base", nil, "first")
	info, err := w.names.Stat(ctx, "one")
	must(t, err)
	_, err = image.ExportDelta(ctx, w.names, info, t.TempDir(), image.ExportOptions{Compression: image.CompressZstd,
		Show: func(ctx context.Context, info snapshot.Info) (string, func() error, error) {
			if info.Name == "one" {
				must(t, w.names.Remove(ctx, "one"))
				w.commit("one", "base", nil, "second")
			}
			return w.show(ctx, info)
		}})
	if !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("%v", err)
	}
	must(t, w.names.Remove(ctx, "one")) // nothing shows it any more
}

// TestExportHeld: what is being exported is not pruned.
func TestExportHeld(t *testing.T) {
	s, name := serve(t), idOf("a").Snapshot()
	w := newWorker(t, s, nil)
	held := 0
	s.is(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPut {
			leases, err := w.names.Leases(ctx, name)
			must(t, err)
			held = len(leases)
		}
		next.ServeHTTP(rw, r)
	})
	w.result("a", "base", "a")
	w.start()
	w.drain()
	if held != 1 {
		t.Errorf("%d leases", held)
	}
}
