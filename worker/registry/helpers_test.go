package registry_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	memory "github.com/google/go-containerregistry/pkg/registry"
	ggcr "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"holdfast/worker/image"
	"holdfast/worker/registry"
	"holdfast/worker/snapshot"
	copydriver "holdfast/worker/snapshot/driver/copy"
)

var ctx = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// handler answers in place of next.
type handler func(w http.ResponseWriter, r *http.Request, next http.Handler)

// server is a registry on this machine whose answers a test can change.
type server struct {
	*httptest.Server
	host string

	mu    sync.Mutex
	bad   handler  // nil: it is good
	asked []string // METHOD PATH
	sent  int64    // bytes of blobs
}

func serve(t testing.TB) *server {
	t.Helper()
	s := &server{}
	next := memory.New(memory.Logger(log.New(io.Discard, "", 0)))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.Method+" "+r.URL.Path)
		bad := s.bad
		s.mu.Unlock()
		if strings.Contains(r.URL.Path, "/blobs/sha256:") && r.Method == http.MethodGet {
			w = &counter{w, s}
		}
		if bad != nil {
			bad(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	s.host = strings.TrimPrefix(s.URL, "http://")
	return s
}

type counter struct {
	http.ResponseWriter
	s *server
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.s.mu.Lock()
	c.s.sent += int64(n)
	c.s.mu.Unlock()
	return n, err
}

// Unwrap lets a test flush.
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// is has the server be bad.
func (s *server) is(bad handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad, s.asked, s.sent = bad, nil, 0
}

// count counts requests whose method and path have a text in them.
func (s *server) count(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.asked {
		if strings.Contains(one, text) {
			n++
		}
	}
	return n
}

func (s *server) bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// noise is content that cannot be compressed.
func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// archive is a tar archive with a file.
func archive(t testing.TB, name string, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), Uid: os.Geteuid(), Gid: os.Getegid(), ModTime: time.Unix(1_700_000_000, 0)}))
	_, err := w.Write(content)
	must(t, err)
	must(t, w.Close())
	return b.Bytes()
}

// layered is an image with layers of so many bytes.
func layered(t testing.TB, sizes ...int) ggcr.Image {
	t.Helper()
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	for i, size := range sizes {
		l := static.NewLayer(archive(t, fmt.Sprintf("file%d", i), noise(size, uint64(i))), types.OCIUncompressedLayer)
		var err error
		img, err = mutate.AppendLayers(img, l)
		must(t, err)
	}
	config, err := img.ConfigFile()
	must(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture = runtime.GOOS, runtime.GOARCH
	config.Config = ggcr.Config{Env: []string{"A=b"}, Cmd: []string{"/bin/true"}, WorkingDir: "/"}
	img, err = mutate.ConfigFile(img, config)
	must(t, err)
	return img
}

// put puts an image into the registry.
func (s *server) put(t testing.TB, repo string, img ggcr.Image) (ref string) {
	t.Helper()
	s.is(nil)
	ref = s.host + "/" + repo
	r, err := name.ParseReference(ref)
	must(t, err)
	must(t, remote.Write(r, img))
	s.is(nil)
	return ref
}

// store opens a store of the driver, or of copy, in a directory of its own.
func store(t testing.TB, d snapshot.Driver) *snapshot.Namespace {
	t.Helper()
	if d == nil {
		d = copydriver.New()
	}
	s, err := snapshot.Open(t.TempDir(), snapshot.Options{Driver: d})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	namespace, err := s.Namespace("local")
	must(t, err)
	return namespace
}

// client is one with little patience.
func client(n *snapshot.Namespace) *registry.Client {
	return &registry.Client{
		Downloads: downloads(n), Stall: 10 * time.Second, Backoff: func(int) time.Duration { return time.Millisecond },
		Keychain: authn.NewMultiKeychain(), // the user's is none of the tests'
	}
}

func downloads(n *snapshot.Namespace) string { return filepath.Join(n.Store().Root(), "downloads") }

// none fails if an import has left anything in a namespace.
func none(t testing.TB, n *snapshot.Namespace) {
	t.Helper()
	must(t, n.Walk(ctx, func(i snapshot.Info) error {
		t.Errorf("there is the snapshot %q", i.Name)
		return nil
	}))
}

// left are the names of what is in the directory of downloads.
func left(t testing.TB, n *snapshot.Namespace) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(downloads(n))
	if !os.IsNotExist(err) {
		must(t, err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func named(name string) image.Options { return image.Options{Name: name} }
