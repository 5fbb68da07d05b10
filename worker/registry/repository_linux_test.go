package registry_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

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
	if _, _, err := a.Blob(ctx, d.Blob, d.Blob.Size-1); !errors.Is(err, image.ErrLimit) {
		t.Error(err)
	}
	if _, _, err := a.Blob(ctx, v1.Descriptor{Digest: "sha256:../../x"}, 100); !errors.Is(err, image.ErrFormat) {
		t.Error(err)
	}
	f, done, err := a.Blob(ctx, d.Blob, 1<<20)
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
	if _, _, err := a.Blob(ctx, d.Blob, 1<<20); !errors.Is(err, image.ErrDigest) {
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
