package registry_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/image"
	"holdfast/worker/mount"
	"holdfast/worker/registry"
	"holdfast/worker/snapshot"
)

// pushArtifact pushes an artifact whose layer is an archive, with the tag one.
func pushArtifact(t *testing.T, c *registry.Client, s *server, tar []byte) (repo *registry.Repository, d image.Delta) {
	t.Helper()
	dir := t.TempDir()
	d = image.Delta{DiffID: digest.FromBytes(tar), Blob: v1.Descriptor{MediaType: v1.MediaTypeImageLayer, Digest: digest.FromBytes(tar), Size: int64(len(tar))}}
	must(t, os.MkdirAll(filepath.Join(dir, "blobs/sha256"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "blobs/sha256", d.Blob.Digest.Encoded()), tar, 0o644))
	m, err := image.Seal(dir, []byte(`{"a":1}`), "application/vnd.test+json", v1.Manifest{Layers: []v1.Descriptor{d.Blob}})
	must(t, err)
	repo, err = c.Repository(s.host + "/results")
	must(t, err)
	t.Cleanup(repo.Close)
	must(t, repo.Push(ctx, dir, m.Digest, "one"))
	return repo, d
}

// TestArtifact: what was pushed comes back, and is applied to a snapshot; what is too large, or not its digest, is not.
func TestArtifact(t *testing.T) {
	s, n := serve(t), store(t, nil)
	c := client(n)
	repo, d := pushArtifact(t, c, s, archive(t, "file", []byte("content")))
	if _, err := repo.Artifact(ctx, "none"); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
	a, err := repo.Artifact(ctx, "one")
	must(t, err)
	b, err := a.Document(ctx, a.Manifest.Config, 100)
	if err != nil || string(b) != `{"a":1}` {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := a.Document(ctx, a.Manifest.Config, 6); !errors.Is(err, image.ErrLimit) {
		t.Error(err)
	}
	if _, _, err := a.Blob(ctx, d.Blob, d.Blob.Size-1, moved); !errors.Is(err, image.ErrLimit) {
		t.Error(err)
	}
	if _, _, err := a.Blob(ctx, v1.Descriptor{Digest: "sha256:../../x"}, 100, moved); !errors.Is(err, image.ErrFormat) {
		t.Error(err)
	}
	f, done, err := a.Blob(ctx, d.Blob, 1<<20, moved)
	must(t, err)
	mounts, err := n.Prepare(ctx, "active", "")
	must(t, err)
	must(t, image.ApplyDelta(ctx, mounts, "", d, f, image.Options{}))
	must(t, f.Close())
	must(t, done())
	if got, err := os.ReadFile(filepath.Join(mounts[0].Source, "file")); err != nil || string(got) != "content" {
		t.Errorf("%q, %v", got, err)
	}
	if names := left(t, n); len(names) > 0 {
		t.Errorf("left: %q", names)
	}
	s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodGet && filepath.Base(r.URL.Path) == d.Blob.Digest.String() {
			_, _ = w.Write(bytes.Repeat([]byte("x"), int(d.Blob.Size)))
			return
		}
		next.ServeHTTP(w, r)
	})
	if _, _, err := a.Blob(ctx, d.Blob, 1<<20, moved); !errors.Is(err, image.ErrDigest) {
		t.Error(err)
	}
	s.is(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusForbidden) })
	if _, err := repo.Artifact(ctx, "one"); !errors.Is(err, registry.ErrDenied) {
		t.Error(err)
	}
}

// TestBadDelta: a layer that leads out of the tree, or is not what was promised, is refused.
func TestBadDelta(t *testing.T) {
	n := store(t, nil)
	good := archive(t, "file", nil)
	delta := func(tar []byte) image.Delta {
		return image.Delta{DiffID: digest.FromBytes(tar), Blob: v1.Descriptor{MediaType: v1.MediaTypeImageLayer, Digest: digest.FromBytes(tar), Size: int64(len(tar))}}
	}
	escape := archive(t, "../x", nil)
	wrong, kind, short := delta(good), delta(good), delta(good)
	wrong.DiffID, kind.Blob.MediaType, short.Blob.Size = digest.FromString("another"), "text/plain", 10
	for name, c := range map[string]struct {
		d    image.Delta
		tar  []byte
		want error
	}{
		"escape": {delta(escape), escape, image.ErrUnsafe},
		"diff":   {wrong, good, image.ErrDigest},
		"type":   {kind, good, image.ErrFormat},
		"size":   {short, good, image.ErrDigest},
		"digest": {delta(good), archive(t, "other", nil), image.ErrDigest},
		"none":   {image.Delta{Blob: v1.Descriptor{MediaType: v1.MediaTypeImageLayer}}, good, image.ErrFormat},
	} {
		mounts, err := n.Prepare(ctx, name, "")
		must(t, err)
		if err := image.ApplyDelta(ctx, mounts, "", c.d, bytes.NewReader(c.tar), image.Options{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, not %v", name, err, c.want)
		}
		must(t, n.Remove(ctx, name))
	}
}

// TestExportDelta: a delta has what a snapshot changes, and on the same parent it makes the same tree.
func TestExportDelta(t *testing.T) {
	n := store(t, nil)
	fill := func(key, parent, file, name string) (at []mount.Mount) {
		t.Helper()
		at, err := n.Prepare(ctx, key, parent)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(at[0].Source, file), []byte(file), 0o644))
		must(t, n.Commit(ctx, name, key))
		return at
	}
	fill("a", "", "below", "base")
	fill("b", "base", "above", "top")
	info, err := n.Stat(ctx, "top")
	must(t, err)
	dir := t.TempDir()
	d, err := image.ExportDelta(ctx, n, info, dir, image.ExportOptions{Compression: image.CompressZstd, Show: func(_ context.Context, i snapshot.Info) (string, func() error, error) {
		m, err := n.View(ctx, "view "+i.Name, i.Name)
		if err != nil {
			return "", nil, err
		}
		return m[0].Source, func() error { return n.Remove(ctx, "view "+i.Name) }, nil
	}})
	must(t, err)
	f, err := os.Open(filepath.Join(dir, "blobs/sha256", d.Blob.Digest.Encoded()))
	must(t, err)
	defer f.Close()
	at, err := n.Prepare(ctx, "again", "base")
	must(t, err)
	must(t, image.ApplyDelta(ctx, at, "base", d, f, image.Options{}))
	for _, file := range []string{"below", "above"} {
		if b, err := os.ReadFile(filepath.Join(at[0].Source, file)); err != nil || string(b) != file {
			t.Errorf("%q, %v", b, err)
		}
	}
}

// moved is told of what is downloaded.
func moved(int64) {}

// TestPushedOver: two workers that had run the same step pushed its result at the same time. The one that looked after
// the other's push found another manifest under the tag, took its own for lost, and pushed it again a minute later.
func TestPushedOver(t *testing.T) {
	s, n := serve(t), store(t, nil)
	c := client(n)
	over := false
	s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(w, r)
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") && !over {
			over = true
			img, err := mutate.ConfigFile(empty.Image, &ggcr.ConfigFile{Author: "another"})
			must(t, err)
			tag, err := name.NewTag(s.host + "/results:one")
			must(t, err)
			must(t, remote.Write(tag, img))
		}
	})
	pushArtifact(t, c, s, archive(t, "file", nil))
	if !over {
		t.Error("nothing was pushed over it")
	}
}

// TestCredentialsExpire: the credentials that a helper gives are good for some hours. A repository that was asked with them
// was asked with the same ones for as long as the daemon ran, and denied all.
func TestCredentialsExpire(t *testing.T) {
	s, n := serve(t), store(t, nil)
	c := client(n)
	repo, _ := pushArtifact(t, c, s, archive(t, "file", nil))
	repo.Close()
	valid, given := "one", "one"
	s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if _, password, _ := r.BasicAuth(); password != valid {
			w.Header().Set("WWW-Authenticate", "Basic realm=test")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	c.Keychain = keychainFunc(func() authn.Authenticator { return &authn.Basic{Username: "me", Password: given} })
	repo, err := c.Repository(s.host + "/results")
	must(t, err)
	defer repo.Close()
	_, err = repo.Artifact(ctx, "one")
	must(t, err)
	valid = "two"
	if _, err := repo.Artifact(ctx, "one"); !errors.Is(err, registry.ErrDenied) {
		t.Errorf("with what has expired: %v", err)
	}
	given = "two"
	if _, err := repo.Artifact(ctx, "one"); err != nil {
		t.Errorf("with what the helper gives now: %v", err)
	}
}

type keychainFunc func() authn.Authenticator

func (f keychainFunc) Resolve(authn.Resource) (authn.Authenticator, error) { return f(), nil }

// TestRedirectSecrets: errors, which are logged, had the URLs to which a registry had redirected, with the credentials
// for its storage in them.
func TestRedirectSecrets(t *testing.T) {
	s, n := serve(t), store(t, nil)
	c := client(n)
	repo, d := pushArtifact(t, c, s, archive(t, "file", nil))
	for _, to := range []string{"http://127.0.0.1:1/x?token=HUSH&X-Amz-Signature=HUSH", "/v2/again?token=HUSH&X-Amz-Signature=HUSH", "http://x.example/\x7f?a=HUSH"} {
		s.is(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusTemporaryRedirect)
		})
		other, err := c.Repository(s.host + "/results")
		must(t, err)
		defer other.Close()
		for _, r := range []*registry.Repository{repo, other} {
			_, err := r.Artifact(ctx, "one")
			if err == nil || strings.Contains(err.Error(), "HUSH") {
				t.Errorf("artifact: %v", err)
			}
			dir := t.TempDir()
			must(t, os.MkdirAll(filepath.Join(dir, "blobs/sha256"), 0o755))
			m, err := image.Seal(dir, []byte(`{"a":2}`), "application/vnd.test+json", v1.Manifest{})
			must(t, err)
			if err := r.Push(ctx, dir, m.Digest, "two"); err == nil || strings.Contains(err.Error(), "HUSH") {
				t.Errorf("push: %v", err)
			}
		}
		if _, err := c.Pull(ctx, n, s.host+"/results@"+d.Blob.Digest.String(), image.Options{}, nil); err == nil || strings.Contains(err.Error(), "HUSH") {
			t.Errorf("pull: %v", err)
		}
	}
}
