package remotecache_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/image"
	"holdfast/worker/remotecache"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// TestShared: what one worker has made another gets, with those below it, though only the last was offered.
func TestShared(t *testing.T) {
	s := serve(t)
	first, second := newWorker(t, s, nil), newWorker(t, s, nil)
	first.result("a", "base", "file a")
	first.result("b", idOf("a").Snapshot(), "file b")
	first.start()
	first.Offer(idOf("b").Snapshot())
	first.drain()
	for _, name := range []string{"a", "b"} {
		info, err := first.names.Stat(ctx, idOf(name).Snapshot())
		if err != nil || step.ContentOf(info) == "" || info.Labels[step.LabelExport] != "" {
			t.Errorf("%+v, %v", info, err)
		}
	}
	below := "base"
	for _, name := range []string{"a", "b"} {
		got, err := second.fetch(name, below, "file "+name)
		if below = idOf(name).Snapshot(); err != nil || got != below+"file "+name {
			t.Errorf("%q, %v", got, err)
		}
	}
	if found, err := second.Find(ctx, idOf("b"), "content of the base"); found != nil || err != nil {
		t.Errorf("a result on another base: %+v, %v", found, err)
	}
	f := second.Figures()[0]
	if f.Fetched != 2 || f.Missed != 1 || f.Failed+f.Refused != 0 || f.FetchedBytes == 0 {
		t.Errorf("%+v", f)
	}
	if f := first.Figures()[0]; f.Exported != 2 || f.ExportFailed != 0 {
		t.Errorf("%+v", f)
	}
	for _, w := range []*worker{first, second} {
		if left, err := os.ReadDir(w.downloads()); err == nil && len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		must(t, w.names.Walk(ctx, func(i snapshot.Info) error {
			if leases, err := w.names.Leases(ctx, i.Name); i.Kind != snapshot.Committed || err != nil || len(leases) > 0 {
				t.Errorf("left: %+v, %v, %v", i, leases, err)
			}
			return nil
		}))
	}
}

// TestNotShared: what only one store can know is not exported, nor tried again and again.
func TestNotShared(t *testing.T) {
	s := serve(t)
	w := newWorker(t, s, nil)
	w.commit("of unknown content", "", nil, "x")
	w.result("a", "of unknown content", "a")
	w.commit(idOf("uncached").Snapshot(), "base", map[string]string{step.LabelVersion: "2", step.LabelUncached: "a reason"}, "b")
	w.result("c", idOf("uncached").Snapshot(), "c")
	w.start()
	w.drain()
	for _, name := range []string{"a", "c"} {
		info, err := w.names.Stat(ctx, idOf(name).Snapshot())
		if err != nil || step.ContentOf(info) != "" || info.Labels[step.LabelExport] != step.ExportNever {
			t.Errorf("%+v, %v", info, err)
		}
	}
	if f := w.Figures()[0]; f.Exported+f.ExportFailed > 0 || s.requests() > 0 {
		t.Errorf("%+v", f)
	}
}

// TestReplacedMeanwhile: the content of a result is not written to another one that has its name by now.
func TestReplacedMeanwhile(t *testing.T) {
	s := serve(t)
	w := newWorker(t, s, nil)
	name := idOf("a").Snapshot()
	w.result("a", "base", "first")
	replaced := false
	s.is(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") && !replaced {
			replaced = true
			must(t, w.names.Remove(ctx, name))
			w.commit(name, "base", map[string]string{step.LabelVersion: "2"}, "second")
		}
		next.ServeHTTP(rw, r)
	})
	w.start()
	w.drain()
	info, err := w.names.Stat(ctx, name)
	if err != nil || !replaced || step.ContentOf(info) != "" {
		t.Errorf("%+v, %v, %v", info, replaced, err)
	}
}

// TestExportAgain: an export that fails is tried again, and what was not exported is by the next process.
func TestExportAgain(t *testing.T) {
	s := serve(t)
	failing := 3
	s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") && failing > 0 {
			failing--
			w.WriteHeader(http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
	w := newWorker(t, s, nil)
	w.result("a", "base", "a")
	w.start() // and nothing is offered: it is labeled
	w.drain()
	if f := w.Figures()[0]; f.Exported != 1 || f.ExportFailed != 3 {
		t.Errorf("%+v", f)
	}
	s.is(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusForbidden) })
	w.result("b", "base", "b")
	w.Offer(idOf("b").Snapshot())
	w.drain() // given up
	if info, err := w.names.Stat(ctx, idOf("b").Snapshot()); err != nil || info.Labels[step.LabelExport] == "" || step.ContentOf(info) != "" {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestExportPause: all who export leave a registry alone that has failed, not only the one who has seen it.
func TestExportPause(t *testing.T) {
	s := serve(t)
	s.is(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusForbidden) })
	w := newWorker(t, s, func(o *remotecache.Options) {
		o.Exports, o.Pause = 3, time.Hour
	})
	w.result("a", "base", "a")
	w.start()
	for w.Figures()[0].ExportFailed == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond) // for those that would not wait
	if f := w.Figures()[0]; f.ExportFailed != 1 {
		t.Errorf("%+v", f)
	}
}

// exported is a server with the result a on the base.
func exported(t *testing.T, change func(*remotecache.Options)) *server {
	s := serve(t)
	w := newWorker(t, s, change)
	w.result("a", "base", "file")
	w.start()
	w.drain()
	return s
}

// TestUntrusted: what is not signed by a trusted key is refused, unless no signature is needed.
func TestUntrusted(t *testing.T) {
	for name, key := range map[string]string{"another key": "other", "no key": ""} {
		s := exported(t, func(o *remotecache.Options) {
			if o.Repositories[0].Key = nil; key != "" {
				o.Repositories[0].Key = keyOf(key)
			}
		})
		w := newWorker(t, s, nil)
		if _, err := w.fetch("a", "base", "file"); !errors.Is(err, remotecache.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
		if f := w.Figures()[0]; f.Refused != 1 || f.Paused {
			t.Errorf("%s: %+v", name, f)
		}
		w = newWorker(t, s, func(o *remotecache.Options) {
			o.Repositories[0].Trusted, o.Repositories[0].Unsigned = nil, true
		})
		if got, err := w.fetch("a", "base", "file"); err != nil || got == "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, r := range []remotecache.Repository{
		{Name: "x.example/y", Import: true}, {Name: "x.example/y", Import: true, Unsigned: true, Trusted: publicOf("one")}, {Name: "X Y", Export: true},
	} {
		if c, err := remotecache.New(remotecache.Options{Repositories: []remotecache.Repository{r}}); err == nil {
			c.Close()
			t.Errorf("%+v is taken", r)
		}
	}
}

// change has a server answer with another manifest for a tag, and with blobs that a map has.
func (s *server) change(manifest func(*v1.Manifest), blobs map[digest.Digest][]byte) {
	s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if i := strings.LastIndex(r.URL.Path, "/blobs/"); i >= 0 {
			if b, ok := blobs[digest.Digest(r.URL.Path[i+len("/blobs/"):])]; ok {
				_, _ = w.Write(b)
				return
			}
		}
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/manifests/") {
			next.ServeHTTP(w, r)
			return
		}
		got := httptest.NewRecorder()
		next.ServeHTTP(got, r)
		var m v1.Manifest
		if got.Code == http.StatusOK && json.Unmarshal(got.Body.Bytes(), &m) == nil {
			manifest(&m)
			b, _ := json.Marshal(m)
			got.Body = bytes.NewBuffer(b)
			got.Header().Set("Docker-Content-Digest", digest.FromBytes(b).String())
			got.Header().Del("Content-Length")
		}
		for k, v := range got.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(got.Code)
		_, _ = io.Copy(w, got.Body)
	})
}

// statement is that of the result a.
func (s *server) statement(t *testing.T) (st remotecache.Statement) {
	t.Helper()
	var d v1.Descriptor
	s.change(func(m *v1.Manifest) { d = m.Config }, nil)
	w := newWorker(t, s, nil)
	found, err := w.Find(ctx, idOf("a"), "content of the base")
	if err != nil || found == nil {
		t.Fatal(found, err)
	}
	resp, err := http.Get(s.URL + "/v2/team/steps/blobs/" + d.Digest.String())
	must(t, err)
	defer resp.Body.Close()
	must(t, json.NewDecoder(resp.Body).Decode(&st))
	return st
}

// TestPoisoned: a statement of something else, or of what is not there, is refused also if it is signed, or needs no
// signature; nothing of it stays, and the step would be run.
func TestPoisoned(t *testing.T) {
	s := exported(t, nil)
	good := s.statement(t)
	layer := []byte("not an archive")
	for name, c := range map[string]struct {
		change func(*remotecache.Statement)
		want   error
	}{
		"step":      {func(st *remotecache.Statement) { st.Step = idOf("b").String() }, remotecache.ErrRefused},
		"base":      {func(st *remotecache.Statement) { st.Base = "another" }, remotecache.ErrRefused},
		"platform":  {func(st *remotecache.Statement) { st.Platform = "plan9/amd64" }, remotecache.ErrRefused},
		"version":   {func(st *remotecache.Statement) { st.Version = 2 }, image.ErrFormat},
		"negative":  {func(st *remotecache.Statement) { st.OutputSize = -1 }, image.ErrFormat},
		"diff":      {func(st *remotecache.Statement) { st.DiffID = digest.FromString("x") }, image.ErrDigest},
		"no diff":   {func(st *remotecache.Statement) { st.DiffID = "sha256:../../../etc/passwd" }, image.ErrFormat},
		"no digest": {func(st *remotecache.Statement) { st.Layer.Digest = "sha256:../../../etc/passwd" }, image.ErrFormat},
		"missing":   {func(st *remotecache.Statement) { st.Layer.Digest = digest.FromString("missing") }, image.ErrFormat},
		"size":      {func(st *remotecache.Statement) { st.Layer.Size++ }, image.ErrDigest},
		"huge":      {func(st *remotecache.Statement) { st.Layer.Size = 1 << 60 }, image.ErrLimit},
		"below 0":   {func(st *remotecache.Statement) { st.Layer.Size = -1 << 60 }, image.ErrLimit},
		"type":      {func(st *remotecache.Statement) { st.Layer.MediaType = "text/plain" }, image.ErrFormat},
		"layer": {func(st *remotecache.Statement) {
			st.Layer.Digest, st.Layer.Size = digest.FromBytes(layer), int64(len(layer))
		}, image.ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			c.change(&bad)
			b, err := json.Marshal(bad)
			must(t, err)
			s.change(func(m *v1.Manifest) {
				m.Config.Digest, m.Config.Size = digest.FromBytes(b), int64(len(b))
			}, map[digest.Digest][]byte{digest.FromBytes(b): b, digest.FromBytes(layer): layer})
			signed := newWorker(t, s, nil)
			if _, err := signed.fetch("a", "base", "file"); !errors.Is(err, remotecache.ErrRefused) {
				t.Errorf("with the signature of another: %v", err)
			}
			w := newWorker(t, s, func(o *remotecache.Options) { o.Repositories[0].Trusted, o.Repositories[0].Unsigned = nil, true })
			if _, err := w.fetch("a", "base", "file"); !errors.Is(err, c.want) {
				t.Errorf("%v, not %v", err, c.want)
			}
			if w.Figures()[0].Fetched > 0 {
				t.Error("it counts as fetched")
			}
			if left, err := os.ReadDir(w.downloads()); err == nil && len(left) > 0 && c.want != image.ErrDigest {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestBadManifests: a manifest that is none of results is refused.
func TestBadManifests(t *testing.T) {
	s := exported(t, nil)
	for name, change := range map[string]func(*v1.Manifest){
		"type":       func(m *v1.Manifest) { m.Config.MediaType = v1.MediaTypeImageConfig },
		"signature":  func(m *v1.Manifest) { m.Annotations[remotecache.AnnotationSignature] = "?" },
		"signatures": func(m *v1.Manifest) { m.Annotations[remotecache.AnnotationSignature] = strings.Repeat("A", 1<<20) },
		"unsigned":   func(m *v1.Manifest) { m.Annotations = nil },
		"digest":     func(m *v1.Manifest) { m.Config.Digest = "x" },
		"large":      func(m *v1.Manifest) { m.Config.Size = 1 << 40 },
	} {
		s.change(change, nil)
		w := newWorker(t, s, nil)
		if found, err := w.Find(ctx, idOf("a"), "content of the base"); found != nil || err == nil {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
		if f := w.Figures()[0]; f.Refused+f.Failed != 1 || f.Paused {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestPause: a registry that fails is left alone for a while, and one that is asked after it has what it has not.
func TestPause(t *testing.T) {
	s, gone := exported(t, nil), serve(t)
	gone.is(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	w := newWorker(t, s, func(o *remotecache.Options) {
		o.Pause = 0 // the default
		o.Repositories = append([]remotecache.Repository{{Name: gone.repository(), Import: true, Unsigned: true}}, o.Repositories...)
	})
	found, err := w.Find(ctx, idOf("a"), "content of the base")
	if err != nil || found == nil || found.From != s.repository() || string(found.Output) != "said" {
		t.Fatalf("%+v, %v", found, err)
	}
	f := w.Figures()
	if !f[0].Paused || f[0].Failed != 1 || f[1].Paused {
		t.Errorf("%+v", f)
	}
	asked := gone.requests()
	if found, err := w.Find(ctx, idOf("b"), "content of the base"); found != nil || err != nil {
		t.Errorf("%+v, %v", found, err)
	}
	if n := gone.requests(); n != asked {
		t.Errorf("it was asked %d times more", n-asked)
	}
}

// TestWithdraw: a result that is being exported can be removed: its export ends, and none begins before it is removed.
func TestWithdraw(t *testing.T) {
	s := serve(t)
	asked := make(chan struct{}, 100)
	s.is(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) { // it never answers
		asked <- struct{}{}
		<-r.Context().Done()
	})
	w := newWorker(t, s, nil)
	w.result("a", "base", "file")
	name := idOf("a").Snapshot()
	w.start()
	<-asked
	release, err := w.Withdraw(ctx, name)
	must(t, err)
	must(t, w.names.Remove(ctx, name))
	release()
	w.drain()
	if f := w.Figures()[0]; f.ExportFailed > 0 {
		t.Errorf("%+v", f)
	}
}
