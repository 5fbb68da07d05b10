package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"

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

func (r *recorded) Header() http.Header         { return r.header }
func (r *recorded) WriteHeader(code int)        { r.code = code }
func (r *recorded) Write(b []byte) (int, error) { r.body = append(r.body, b...); return len(b), nil }

// TestLies: none of it is imported, and it is said which registry has told what.
func TestLies(t *testing.T) {
	s := serve(t)
	ref := s.put(t, "app:1", layered(t, 3<<20))
	large := func(r *http.Request) bool { return isLayer(r) && r.Context().Value(http.LocalAddrContextKey) != nil }
	for what, test := range map[string]struct {
		bad  func(w http.ResponseWriter, r *http.Request, next http.Handler)
		want error
		text string
	}{
		"other bytes of a blob": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			answer(w, r, next, func(_ http.Header, b []byte) []byte {
				if large(r) && len(b) > 1<<20 {
					b[100]++
				}
				return b
			})
		}, image.ErrDigest, "its digest is sha256:"},
		"a longer blob": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			answer(w, r, next, func(h http.Header, b []byte) []byte {
				if isLayer(r) && len(b) > 1<<20 {
					h.Del("Content-Length")
					return append(b, 0)
				}
				return b
			})
		}, image.ErrDigest, "longer than the"},
		"another length": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			answer(w, r, next, func(h http.Header, b []byte) []byte {
				if isLayer(r) && len(b) > 1<<20 {
					h.Set("Content-Length", fmt.Sprint(len(b)-1))
					return b[:len(b)-1]
				}
				return b
			})
		}, image.ErrDigest, "and its descriptor says"},
		"a shorter blob": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			answer(w, r, next, func(h http.Header, b []byte) []byte {
				if isLayer(r) && len(b) > 1<<20 {
					h.Del("Content-Length")
					return b[:len(b)-1]
				}
				return b
			})
		}, image.ErrDigest, "it ends after"},
		"another config": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			answer(w, r, next, func(_ http.Header, b []byte) []byte {
				if isLayer(r) && len(b) < 10000 {
					b[10]++
				}
				return b
			})
		}, image.ErrDigest, "has not its digest"},
		"another manifest than it says": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			answer(w, r, next, func(h http.Header, b []byte) []byte {
				if isManifest(r) {
					h.Del("Content-Length")
					return append(b, ' ')
				}
				return b
			})
		}, image.ErrDigest, "the registry says that it is"},
		"an endless manifest": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !isManifest(r) {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			for b := make([]byte, 1<<20); ; {
				if _, err := w.Write(b); err != nil {
					return
				}
			}
		}, image.ErrLimit, "a document of more than"},
		"a manifest of schema 1": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !isManifest(r) {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v1+prettyjws")
			fmt.Fprint(w, `{"schemaVersion":1,"name":"x"}`)
		}, image.ErrFormat, "schema version 1"},
		"a page of HTML": {func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			fmt.Fprint(w, "<html>please log in</html>")
		}, image.ErrFormat, "manifest 1"},
	} {
		t.Run(what, func(t *testing.T) {
			n := store(t, nil)
			s.is(test.bad)
			_, err := client(n).Pull(ctx, n, ref, named("x"), nil)
			if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.text) || !strings.Contains(fmt.Sprint(err), s.host) {
				t.Errorf("got %v", err)
			}
			none(t, n)
			s.is(nil) // what is left of it does not keep the next one from being right
			_, err = client(n).Pull(ctx, n, ref, named("x"), nil)
			must(t, err)
		})
	}
}

// TestFailures: what a registry can have for a while is tried again, what it has for good is not.
func TestFailures(t *testing.T) {
	s := serve(t)
	ref := s.put(t, "app:1", layered(t, 3<<20))
	status := func(code, times int) func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		var n atomic.Int64
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if (isLayer(r) || isManifest(r)) && n.Add(1) <= int64(times) {
				w.WriteHeader(code)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
	for _, test := range []struct {
		code, times int
		want        error // nil: it succeeds
	}{
		{500, 3, nil}, {503, 3, nil}, {429, 3, nil},
		{500, 1000, errors.New("500")}, {404, 1, registry.ErrNotFound}, {401, 1000, registry.ErrDenied}, {403, 1, registry.ErrDenied},
	} {
		n := store(t, nil)
		s.is(status(test.code, test.times))
		_, err := client(n).Pull(ctx, n, ref, named("x"), nil)
		switch {
		case test.want == nil:
			must(t, err)
		case !errors.Is(err, test.want) && !strings.Contains(fmt.Sprint(err), test.want.Error()):
			t.Errorf("%d: %v", test.code, err)
		}
		if test.want != nil {
			none(t, n)
			if most := 5; s.count("/manifests/") > most {
				t.Errorf("%d: asked %d times", test.code, s.count("/manifests/"))
			}
		}
	}
	n := store(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	if _, err := client(n).Pull(ctx, n, l.Addr().String()+"/app:1", named("x"), nil); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a registry that is not there: %v", err)
	}
	for _, bad := range []string{"", "UPPER", "a b", s.host + "/x:y:z"} {
		if _, err := client(n).Pull(ctx, n, bad, named("x"), nil); !errors.Is(err, registry.ErrReference) {
			t.Errorf("reference %q: %v", bad, err)
		}
	}
}

// TestRetryAfter: a server says when to come again, and is not waited for longer than a minute.
func TestRetryAfter(t *testing.T) {
	s, n := serve(t), store(t, nil)
	ref := s.put(t, "app:1", layered(t, 100))
	var times atomic.Int64
	s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if isManifest(r) && times.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
			return
		}
		next.ServeHTTP(w, r)
	})
	begun := time.Now()
	_, err := client(n).Pull(ctx, n, ref, named("x"), nil)
	must(t, err)
	if took := time.Since(begun); took < time.Second {
		t.Errorf("it was asked again after %s", took)
	}
}

// TestStalls: a server that sends nothing, or next to nothing, is not waited for.
func TestStalls(t *testing.T) {
	s := serve(t)
	ref := s.put(t, "app:1", layered(t, 3<<20))
	for what, bad := range map[string]func(w http.ResponseWriter, r *http.Request, next http.Handler){
		"no answer": func(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() },
		"no manifest": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if isManifest(r) {
				<-r.Context().Done()
			}
			next.ServeHTTP(w, r)
		},
		"half a blob": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			answer(w, r, next, func(h http.Header, b []byte) []byte {
				if !isLayer(r) || len(b) < 1<<20 {
					return b
				}
				w.Header().Set("Content-Length", h.Get("Content-Length"))
				_, _ = w.Write(b[:1<<20])
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return nil
			})
		},
		"a byte now and then": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			answer(w, r, next, func(h http.Header, b []byte) []byte {
				if !isLayer(r) || len(b) < 1<<20 {
					return b
				}
				w.Header().Set("Content-Length", h.Get("Content-Length"))
				for i := range b {
					if _, err := w.Write(b[i : i+1]); err != nil || r.Context().Err() != nil {
						break
					}
					_ = http.NewResponseController(w).Flush()
					time.Sleep(20 * time.Millisecond)
				}
				return nil
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			n := store(t, nil)
			c := client(n)
			c.Stall = 300 * time.Millisecond
			s.is(bad)
			_, err := c.Pull(ctx, n, ref, named("x"), nil)
			if !errors.Is(err, registry.ErrStalled) || !strings.Contains(err.Error(), s.host) {
				t.Errorf("got %v", err)
			}
			none(t, n)
		})
	}
}

func TestRedirects(t *testing.T) {
	s, n := serve(t), store(t, nil)
	ref := s.put(t, "app:1", layered(t, 3<<20))
	elsewhere := func(to string) func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if isLayer(r) {
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
	s.is(elsewhere("/v2/app/blobs/sha256:loop"))
	if _, err := client(n).Pull(ctx, n, ref, named("x"), nil); err == nil || !strings.Contains(err.Error(), "redirects") {
		t.Errorf("an endless redirect: %v", err)
	}
	// A blob from another host, longer than any document, and without the credentials of the registry.
	var told sync.Map
	other := serve(t)
	other.put(t, "app:1", layered(t, 20<<20))
	big := s.put(t, "big:1", layered(t, 20<<20))
	other.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Header.Get("Authorization") != "" {
			told.Store(r.URL.Path, r.Header.Get("Authorization"))
		}
		r.URL.Path = strings.Replace(r.URL.Path, "/elsewhere/", "/v2/app/blobs/", 1)
		next.ServeHTTP(w, r)
	})
	s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if user, _, _ := r.BasicAuth(); user != "me" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if isLayer(r) {
			http.Redirect(w, r, other.URL+"/elsewhere/"+filepath.Base(r.URL.Path), http.StatusTemporaryRedirect)
			return
		}
		next.ServeHTTP(w, r)
	})
	c := client(n)
	c.Keychain = keys{"me", "secret"}
	_, err := c.Pull(ctx, n, big, named("x"), nil)
	must(t, err)
	told.Range(func(path, v any) bool {
		t.Errorf("the credentials %s went to another host, for %s", v, path)
		return true
	})
}

type keys struct{ user, password string }

func (k keys) Resolve(authn.Resource) (authn.Authenticator, error) {
	return &authn.Basic{Username: k.user, Password: k.password}, nil
}

// TestToken: a registry gives out tokens for credentials, and one that is no use any more is asked for again.
func TestToken(t *testing.T) {
	s, n := serve(t), store(t, nil)
	ref := s.put(t, "app:1", layered(t, 1<<20))
	var given atomic.Int64
	wrong := false
	s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		token := fmt.Sprint("Bearer token", given.Load())
		switch {
		case r.URL.Path == "/token" && wrong:
			_, _ = io.Copy(w, io.LimitReader(zeros{}, 100<<20))
		case r.URL.Path == "/token":
			if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" || r.FormValue("scope") != "repository:app:pull" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			fmt.Fprintf(w, `{"token": "token%d"}`, given.Add(1))
		case r.Header.Get("Authorization") != token, isLayer(r) && given.Load() < 2: // the first has expired by then
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+s.URL+`/token",service="x",scope="repository:app:pull"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
	c := client(n)
	c.Keychain = keys{"me", "secret"}
	_, err := c.Pull(ctx, n, ref, named("x"), nil)
	must(t, err)
	if given.Load() != 2 {
		t.Errorf("%d tokens were given", given.Load())
	}
	c.Keychain = keys{"me", "wrong"}
	if _, err := c.Pull(ctx, n, ref, named("x"), nil); !errors.Is(err, registry.ErrDenied) {
		t.Errorf("wrong credentials: %v", err)
	}
	wrong = true
	if _, err := c.Pull(ctx, n, ref, named("x"), nil); err == nil || len(err.Error()) > 1000 {
		t.Errorf("an endless token: %.1000v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestPlainHTTP: only this machine is spoken to in the clear, unless asked for.
func TestPlainHTTP(t *testing.T) {
	n := store(t, nil)
	c := client(n)
	for _, host := range []string{"10.0.0.1", "192.168.1.1:5000"} {
		c2, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := registry.Dialing(c, func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrClosedPipe }).Pull(c2, n, host+"/app", named("x"), nil)
		cancel()
		if !errors.Is(err, registry.ErrPlainHTTP) {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// TestResume: what was downloaded is not downloaded again, whatever is left of it, and however the server takes a range.
func TestResume(t *testing.T) {
	const size, cut = 8 << 20, 5 << 20
	s := serve(t)
	ref := s.put(t, "app:1", layered(t, size))
	broken := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		answer(w, r, next, func(h http.Header, b []byte) []byte {
			if isLayer(r) && len(b) > cut {
				w.Header().Set("Content-Length", h.Get("Content-Length"))
				_, _ = w.Write(b[:cut])
				panic(http.ErrAbortHandler)
			}
			return b
		})
	}
	noRange := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		r.Header.Del("Range")
		next.ServeHTTP(w, r)
	}
	for what, test := range map[string]struct {
		then    func(w http.ResponseWriter, r *http.Request, next http.Handler)
		spoil   func(t *testing.T, part string)
		least   int64
		most    int64
		refused error
	}{
		"goes on":             {then: nil, most: size - cut + 100000},
		"the range ignored":   {then: noRange, least: size, most: size + 100000},
		"other bytes before":  {spoil: func(t *testing.T, part string) { must(t, os.WriteFile(part, make([]byte, cut), 0o600)) }, least: size, most: 2*size - cut + 100000},
		"more than there is":  {spoil: func(t *testing.T, part string) { must(t, os.Truncate(part, 2*size)) }, least: size, most: size + 100000},
		"nothing of it there": {spoil: func(t *testing.T, part string) { must(t, os.Truncate(part, 0)) }, least: size, most: size + 100000},
		"another range": {then: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if isLayer(r) && r.Header.Get("Range") != "" {
				w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", size, size+1))
				w.WriteHeader(http.StatusPartialContent)
				return
			}
			next.ServeHTTP(w, r)
		}, refused: image.ErrDigest, most: size},
		"no such range": {then: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if isLayer(r) && r.Header.Get("Range") != "" {
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				return
			}
			next.ServeHTTP(w, r)
		}, least: size, most: size + 100000},
	} {
		t.Run(what, func(t *testing.T) {
			n := store(t, nil)
			first, cancel := context.WithCancel(ctx)
			s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Header.Get("Range") != "" { // the first attempt alone
					cancel()
					<-r.Context().Done()
					return
				}
				broken(w, r, next)
			})
			if _, err := client(n).Pull(first, n, ref, named("x"), nil); !errors.Is(err, context.Canceled) {
				t.Fatalf("interrupted: %v", err)
			}
			none(t, n)
			list := left(t, n)
			if len(list) != 1 || !strings.HasSuffix(list[0], ".part") {
				t.Fatalf("left: %q", list)
			}
			if test.spoil != nil {
				test.spoil(t, filepath.Join(downloads(n), list[0]))
			}
			s.is(test.then)
			_, err := client(n).Pull(ctx, n, ref, named("x"), nil)
			if !errors.Is(err, test.refused) {
				t.Fatal(err)
			}
			if got := s.bytes(); got < test.least || got > test.most {
				t.Errorf("%d bytes were sent, not %d to %d", got, test.least, test.most)
			}
			if test.refused == nil && len(left(t, n)) > 0 {
				t.Errorf("left: %q", left(t, n))
			}
		})
	}
	t.Run("in one pull", func(t *testing.T) { // a connection that breaks again and again, but never without bringing much
		n := store(t, nil)
		s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			answer(w, r, next, func(h http.Header, b []byte) []byte {
				if len(b) > 1200<<10 {
					w.Header().Set("Content-Length", h.Get("Content-Length"))
					w.Header().Set("Content-Range", h.Get("Content-Range"))
					if r.Header.Get("Range") != "" {
						w.WriteHeader(http.StatusPartialContent)
					}
					_, _ = w.Write(b[:1100<<10])
					panic(http.ErrAbortHandler)
				}
				return b
			})
		})
		_, err := client(n).Pull(ctx, n, ref, named("x"), nil)
		must(t, err)
		if got := s.bytes(); got > size+size/2 {
			t.Errorf("%d bytes were sent", got)
		}
	})
}

// TestWholeDownload: a blob that was downloaded whole is verified before it is used again.
func TestWholeDownload(t *testing.T) {
	const size = 2 << 20
	s := serve(t)
	ref := s.put(t, "app:1", layered(t, size, 100))
	for _, spoiled := range []bool{false, true} {
		n := store(t, nil)
		s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			answer(w, r, next, func(_ http.Header, b []byte) []byte {
				if isLayer(r) && len(b) < 10000 && !strings.HasPrefix(string(b), "{") {
					for !slices.ContainsFunc(left(t, n), func(name string) bool { return !strings.HasSuffix(name, ".part") }) {
						time.Sleep(time.Millisecond) // until the other layer is there
					}
					b[0]++
				}
				return b
			})
		})
		_, err := client(n).Pull(ctx, n, ref, named("x"), nil)
		if !errors.Is(err, image.ErrDigest) {
			t.Fatal(err)
		}
		none(t, n)
		whole := ""
		for _, name := range left(t, n) {
			if !strings.HasSuffix(name, ".part") {
				whole = filepath.Join(downloads(n), name)
			}
		}
		if whole == "" {
			t.Fatalf("left: %q", left(t, n))
		}
		if spoiled {
			must(t, os.WriteFile(whole, make([]byte, size), 0o600))
		}
		s.is(nil)
		_, err = client(n).Pull(ctx, n, ref, named("x"), nil)
		must(t, err)
		if sent := s.bytes(); (sent > size) != spoiled {
			t.Errorf("spoiled %v: %d bytes were sent", spoiled, sent)
		}
	}
}

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
	for what, bad := range map[string]func(w http.ResponseWriter, r *http.Request, next http.Handler){
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

// TestFullDisk: what does not fit on the disk does not stay there, in the way of others.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	s, n := serve(t), store(t, nil)
	ref := s.put(t, "app:1", layered(t, 8<<20))
	must(t, os.MkdirAll(downloads(n), 0o700))
	must(t, unix.Mount("tmpfs", downloads(n), "tmpfs", 0, "size=4m"))
	defer func() { must(t, unix.Unmount(downloads(n), 0)) }()
	if _, err := client(n).Pull(ctx, n, ref, named("x"), nil); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if list := left(t, n); len(list) > 0 {
		t.Errorf("left: %q", list)
	}
	none(t, n)
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
