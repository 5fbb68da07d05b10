package registry_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"holdfast/worker/image"
	"holdfast/worker/registry"
)

// lies are what registries can tell that is not so.
var lies = map[string]struct {
	bad  handler
	want error
	text string
}{
	"other bytes of a blob": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		answer(w, r, next, func(_ http.Header, b []byte) []byte {
			if isLayer(r) && len(b) > 1<<20 {
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
}

// TestLies: none of it is imported, and it is said which registry has told what.
func TestLies(t *testing.T) {
	s := serve(t)
	ref := s.put(t, "app:1", layered(t, 3<<20))
	for what, test := range lies {
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
	status := func(code, times int) handler {
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
	for what, bad := range map[string]handler{
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
	elsewhere := func(to string) handler {
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

// TestHostileLayers: what has the right digest is not trusted either.
func TestHostileLayers(t *testing.T) {
	s := serve(t)
	entry := func(h tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		must(t, w.WriteHeader(&h))
		must(t, w.Close())
		return b.Bytes()
	}
	for what, layer := range map[string][]byte{
		"up":       entry(tar.Header{Typeflag: tar.TypeReg, Name: "../evil"}),
		"absolute": entry(tar.Header{Typeflag: tar.TypeReg, Name: "/evil"}),
		"device":   entry(tar.Header{Typeflag: tar.TypeBlock, Name: "disk", Devmajor: 8}),
		"nonsense": []byte(strings.Repeat("nonsense", 1000)),
	} {
		img, err := mutate.AppendLayers(layered(t, 100), static.NewLayer(layer, types.OCIUncompressedLayer))
		must(t, err)
		n := store(t, nil)
		_, err = client(n).Pull(ctx, n, s.put(t, what+":1", img), named("x"), nil)
		if !errors.Is(err, image.ErrUnsafe) && !errors.Is(err, image.ErrFormat) {
			t.Errorf("%s: %v", what, err)
		}
		none(t, n)
	}
	img := layered(t, 100)
	config, err := img.ConfigFile()
	must(t, err)
	config = config.DeepCopy()
	config.RootFS.DiffIDs[0].Hex = strings.Repeat("0", 64)
	img, err = mutate.ConfigFile(img, config)
	must(t, err)
	n := store(t, nil)
	if _, err := client(n).Pull(ctx, n, s.put(t, "diff:1", img), named("x"), nil); !errors.Is(err, image.ErrDigest) {
		t.Errorf("another content: %v", err)
	}
	none(t, n)
}
