package remotecache_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	memory "github.com/google/go-containerregistry/pkg/registry"

	"holdfast/worker/registry"
	"holdfast/worker/remotecache"
	"holdfast/worker/snapshot"
	copydriver "holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/step"
)

var ctx = context.Background()

// server is a registry whose answers a test can change.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	bad   func(w http.ResponseWriter, r *http.Request, next http.Handler) // nil: it is good
	asked int
}

func serve(t testing.TB) *server {
	t.Helper()
	s := &server{}
	next := memory.New(memory.Logger(log.New(io.Discard, "", 0)))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked++
		bad := s.bad
		s.mu.Unlock()
		if bad != nil {
			bad(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	return s
}

// is has the server be bad.
func (s *server) is(bad func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad, s.asked = bad, 0
}

func (s *server) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *server) repository() string { return strings.TrimPrefix(s.URL, "http://") + "/team/steps" }

// worker is a store with a base, and a cache.
type worker struct {
	*testing.T
	*remotecache.Cache
	names *snapshot.Namespace
}

// keyOf is a key that is always the same.
func keyOf(name string) ed25519.PrivateKey {
	sum := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(sum[:])
}

func publicOf(name string) []ed25519.PublicKey {
	return []ed25519.PublicKey{keyOf(name).Public().(ed25519.PublicKey)}
}

// newWorker makes a worker that shares results by the repository of a server, both ways.
func newWorker(t *testing.T, s *server, change func(*remotecache.Options)) *worker {
	t.Helper()
	return newWorkerIn(t, t.TempDir(), s, change)
}

// newWorkerIn makes one whose store is a directory.
func newWorkerIn(t *testing.T, dir string, s *server, change func(*remotecache.Options)) *worker {
	t.Helper()
	store, err := snapshot.Open(dir, snapshot.Options{Driver: copydriver.New()})
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	w := &worker{T: t}
	w.names, err = store.Namespace("local")
	must(t, err)
	o := remotecache.Options{
		Namespace: w.names, Logger: slog.New(slog.DiscardHandler), Show: w.show, FindTime: 2 * time.Second, Pause: time.Millisecond,
		Client: registry.Client{Downloads: w.downloads(), Stall: time.Second, Backoff: func(int) time.Duration { return time.Millisecond },
			Keychain: authn.NewMultiKeychain()},
		Repositories: []remotecache.Repository{{Name: s.repository(), Import: true, Export: true, Key: keyOf("one"), Trusted: publicOf("one")}},
	}
	if change != nil {
		change(&o)
	}
	w.Cache, err = remotecache.New(o)
	must(t, err)
	t.Cleanup(w.Close)
	w.commit("base", "", map[string]string{snapshot.LabelContent: "content of the base"}, "base")
	return w
}

func (w *worker) downloads() string { return filepath.Join(w.names.Store().Root(), "downloads") }

// start begins to export. No result is recorded.
func (w *worker) start() {
	w.Start(func(info snapshot.Info) (*step.Result, error) {
		id, _ := step.ParseSnapshot(info.Name)
		return &step.Result{ID: id, Output: []byte("said"), OutputSize: 4, Duration: time.Second}, nil
	})
}

func (w *worker) show(ctx context.Context, info snapshot.Info) (string, func() error, error) {
	key := "view of " + info.Name
	m, err := w.names.View(ctx, key, info.Name)
	if err != nil {
		return "", nil, err
	}
	return m[0].Source, func() error { return w.names.Remove(ctx, key) }, nil
}

// commit makes a snapshot on another, with a file of its name.
func (w *worker) commit(name, parent string, labels map[string]string, file string) {
	w.Helper()
	m, err := w.names.Prepare(ctx, "making "+name, parent)
	must(w, err)
	must(w, os.WriteFile(filepath.Join(m[0].Source, file), []byte(name+file), 0o644))
	must(w, w.names.Commit(ctx, name, "making "+name, snapshot.WithLabels(labels)))
}

// idOf is an ID.
func idOf(name string) step.ID { return sha256.Sum256([]byte(name)) }

// result makes the result of a step, to be exported.
func (w *worker) result(name, parent, file string) {
	w.Helper()
	w.commit(idOf(name).Snapshot(), parent, map[string]string{step.LabelVersion: "2", step.LabelExport: "pending"}, file)
}

// fetch finds a result and extracts it on a base, as a Runner does, and returns the content of a file of it.
func (w *worker) fetch(name, parent, file string) (string, error) {
	w.Helper()
	base, err := w.names.Stat(ctx, parent)
	must(w, err)
	found, err := w.Find(ctx, idOf(name), step.ContentOf(base))
	if err != nil || found == nil {
		return "", err
	}
	key := "!run/" + name
	m, err := w.names.Prepare(ctx, key, parent)
	must(w, err)
	if err := found.Fill(ctx, m, parent); err != nil {
		must(w, w.names.Remove(ctx, key))
		return "", err
	}
	b, err := os.ReadFile(filepath.Join(m[0].Source, file))
	must(w, err)
	must(w, w.names.Commit(ctx, idOf(name).Snapshot(), key, snapshot.WithLabels(map[string]string{step.LabelVersion: "2", step.LabelContent: found.Content})))
	return string(b), nil
}

// drain waits until all is exported.
func (w *worker) drain() {
	w.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	w.Drain(ctx)
	if n := w.Waiting(); n > 0 {
		w.Fatalf("%d results are not exported", n)
	}
}
