package registry_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"holdfast/worker/image"
	"holdfast/worker/registry"
	"holdfast/worker/snapshot"
)

func TestPull(t *testing.T) {
	s, n := serve(t), store(t, nil)
	ref := s.put(t, "group/app:1", layered(t, 100, 3<<20, 10))
	c := client(n)
	var p registry.Progress
	r, err := c.Pull(ctx, n, ref, named("app"), &p)
	must(t, err)
	if r.Name != "app" || len(r.Layers) != 3 || r.Existed || r.Config.Env[0] != "A=b" {
		t.Errorf("pulled %+v", r)
	}
	if done, total := p.Transferred(); done != total || total < 3<<20 {
		t.Errorf("progress: %d of %d", done, total)
	}
	if list := left(t, n); len(list) > 0 {
		t.Errorf("left: %q", list)
	}
	// Again, and another image on the same layers: nothing is downloaded that is there.
	s.is(nil)
	r, err = c.Pull(ctx, n, ref, named("app"), nil)
	must(t, err)
	if !r.Existed || s.count("GET /v2/group/app/blobs") != 1 { // the config
		t.Errorf("again: %+v, asked for %q", r, s.asked)
	}
	ref = s.put(t, "group/more:1", layered(t, 100, 3<<20, 10, 2000))
	_, err = c.Pull(ctx, n, ref, named("more"), nil)
	must(t, err)
	if s.bytes() > 20000 {
		t.Errorf("%d bytes were sent for a layer of 2000", s.bytes())
	}
}

// TestPullTypes: what Docker calls the same documents, and an index with several platforms.
func TestPullTypes(t *testing.T) {
	s := serve(t)
	docker := mutate.ConfigMediaType(mutate.MediaType(layered(t, 100), types.DockerManifestSchema2), types.DockerConfigJSON)
	config, err := docker.ConfigFile()
	must(t, err)
	other := config.DeepCopy()
	other.Architecture = "other"
	foreign, err := mutate.ConfigFile(layered(t, 200), other)
	must(t, err)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: foreign}, mutate.IndexAddendum{Add: docker})
	r, err := name.ParseReference(s.host + "/index:1")
	must(t, err)
	must(t, remote.WriteIndex(r, index))
	bad := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: foreign})
	r, err = name.ParseReference(s.host + "/foreign:1")
	must(t, err)
	must(t, remote.WriteIndex(r, bad))
	s.put(t, "docker:1", docker)
	digest, err := docker.Digest()
	must(t, err)
	s.put(t, "docker", docker) // latest
	for _, ref := range []string{"docker:1", "docker", "docker@" + digest.String(), "docker:1@" + digest.String(), "index:1"} {
		n := store(t, nil)
		got, err := client(n).Pull(ctx, n, s.host+"/"+ref, named("x"), nil)
		must(t, err)
		if got.Image.String() != digest.String() {
			t.Errorf("%s is %s, not %s", ref, got.Image, digest)
		}
	}
	n := store(t, nil)
	_, err = client(n).Pull(ctx, n, s.host+"/foreign:1", named("x"), nil)
	if !errors.Is(err, image.ErrChoice) || !strings.Contains(err.Error(), "/other") {
		t.Errorf("an index without the platform: %v", err)
	}
	none(t, n)
}

func isLayer(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/sha256:")
}

func isManifest(r *http.Request) bool { return strings.Contains(r.URL.Path, "/manifests/") }

// answer answers with what next does, changed.
func answer(w http.ResponseWriter, r *http.Request, next http.Handler, change func(h http.Header, b []byte) []byte) {
	got := &recorded{header: http.Header{}, code: http.StatusOK}
	next.ServeHTTP(got, r)
	b := change(got.header, got.body)
	for k, v := range got.header {
		w.Header()[k] = v
	}
	w.WriteHeader(got.code)
	_, _ = w.Write(b)
}

type recorded struct {
	header http.Header
	code   int
	body   []byte
}

func (r *recorded) Header() http.Header { return r.header }

func (r *recorded) WriteHeader(code int) { r.code = code }

func (r *recorded) Write(b []byte) (int, error) { r.body = append(r.body, b...); return len(b), nil }

// TestClean: what interrupted downloads have left goes after a day, and the oldest of what is too much at once.
func TestClean(t *testing.T) {
	n := store(t, nil)
	c := client(n)
	c.Keep = 25
	must(t, c.Clean(ctx)) // there is nothing
	must(t, os.MkdirAll(filepath.Join(c.Downloads, "image-123", "blobs"), 0o700))
	now := time.Now()
	for name, age := range map[string]time.Duration{"sha256-old.part": 25 * time.Hour, "sha256-a": time.Hour, "sha256-b.part": 2 * time.Hour, "sha256-c": 3 * time.Hour, "sha256-future": -50 * time.Hour} {
		path := filepath.Join(c.Downloads, name)
		must(t, os.WriteFile(path, make([]byte, 10), 0o600))
		must(t, os.Chtimes(path, now.Add(-age), now.Add(-age)))
	}
	must(t, os.Remove(filepath.Join(c.Downloads, "sha256-future")))
	must(t, os.WriteFile(filepath.Join(c.Downloads, "sha256-future"), nil, 0o600))
	must(t, os.Chtimes(filepath.Join(c.Downloads, "sha256-future"), now.Add(50*time.Hour), now.Add(50*time.Hour)))
	must(t, c.Clean(ctx))
	if list := left(t, n); strings.Join(list, " ") != "sha256-a sha256-b.part" {
		t.Errorf("left: %q", list)
	}
}

// TestPullsAtOnce: two pulls of one image download it once.
func TestPullsAtOnce(t *testing.T) {
	s, n := serve(t), store(t, nil)
	ref := s.put(t, "app:1", layered(t, 4<<20, 1<<20))
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			if _, err := client(n).Pull(ctx, n, ref, named(fmt.Sprint("x", i)), nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if sent := s.bytes(); sent > 3*(5<<20) {
		t.Errorf("%d bytes were sent, of which one pull needs 5 MiB", sent)
	}
	if list := left(t, n); len(list) > 0 {
		must(t, client(n).Clean(ctx))
		t.Logf("left until it expires: %q", list)
	}
}

func TestMirrors(t *testing.T) {
	origin, mirror := serve(t), serve(t)
	img := layered(t, 2<<20, 100)
	ref := origin.put(t, "app:1", img)
	pull := func(mirrors ...string) error {
		n := store(t, nil)
		c := client(n)
		c.Mirrors = map[string][]string{origin.host: mirrors, "docker.io": {"other:1"}}
		_, err := c.Pull(ctx, n, ref, named("x"), nil)
		return err
	}
	mirror.put(t, "app:1", img)
	origin.is(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	must(t, pull("http://"+mirror.host+"/")) // the origin is not asked
	if origin.count("") > 0 {
		t.Errorf("the origin was asked for %q", origin.asked)
	}
	origin.is(nil)
	for what, bad := range map[string]handler{
		"has nothing": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusNotFound) },
		"lies": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			answer(w, r, next, func(_ http.Header, b []byte) []byte {
				if isLayer(r) {
					b[len(b)/2]++
				}
				return b
			})
		},
		"breaks off": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			answer(w, r, next, func(h http.Header, b []byte) []byte {
				if isLayer(r) && len(b) > 10000 {
					w.Header().Set("Content-Length", h.Get("Content-Length"))
					_, _ = w.Write(make([]byte, 10000))
					panic(http.ErrAbortHandler)
				}
				return b
			})
		},
	} {
		mirror.is(bad)
		if err := pull(mirror.host); err != nil {
			t.Errorf("a mirror that %s: %v", what, err)
		}
	}
	must(t, pull("127.0.0.1:1")) // nothing listens
	for _, bad := range []string{"", "a/b", "http://x/y", "a b"} {
		if err := registry.CheckMirror(bad); !errors.Is(err, registry.ErrReference) {
			t.Errorf("the mirror %q: %v", bad, err)
		}
	}
}

// TestTooMuch: layers that say that they are more than is allowed are not downloaded.
func TestTooMuch(t *testing.T) {
	s, n := serve(t), store(t, nil)
	ref := s.put(t, "app:1", layered(t, 2<<20))
	_, err := client(n).Pull(ctx, n, ref, image.Options{Name: "x", Limits: image.Limits{Bytes: 1 << 20}}, nil)
	if !errors.Is(err, image.ErrLimit) || s.bytes() > 100000 {
		t.Errorf("%v, and %d bytes were sent", err, s.bytes())
	}
	none(t, n)
}

// TestNameTaken: it is known before the layers are there.
func TestNameTaken(t *testing.T) {
	s, n := serve(t), store(t, nil)
	c := client(n)
	_, err := c.Pull(ctx, n, s.put(t, "a:1", layered(t, 100)), named("x"), nil)
	must(t, err)
	ref := s.put(t, "b:1", layered(t, 2<<20))
	if _, err = c.Pull(ctx, n, ref, named("x"), nil); !errors.Is(err, snapshot.ErrExists) || s.bytes() > 100000 {
		t.Errorf("%v, and %d bytes were sent", err, s.bytes())
	}
	_, err = c.Pull(ctx, n, ref, image.Options{Name: "x", Replace: true}, nil)
	must(t, err)
}
