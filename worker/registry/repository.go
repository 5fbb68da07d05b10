package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/image"
)

// Repository is one that is asked often, for artifacts: manifests whose blobs are anything. Connections and tokens are kept. Its
// methods can be called by several goroutines at once.
type Repository struct {
	client Client
	repo   name.Repository
	source *source
}

// Repository returns a repository by its name, such as registry.example.com/group/steps, with http:// before it if it has
// no TLS. Mirrors are not asked. The caller closes it.
func (c *Client) Repository(text string) (*Repository, error) {
	var options []name.Option
	bare, plain := strings.CutPrefix(text, "http://")
	if plain || c.PlainHTTP {
		options = append(options, name.Insecure)
	}
	repo, err := name.NewRepository(bare, options...)
	if err != nil {
		return nil, fmt.Errorf("the repository %.200q: %w to one: %w", text, ErrReference, err)
	}
	r := &Repository{client: *c, repo: repo}
	if r.client.transport == nil {
		r.client.transport = newTransport(c.stall())
	}
	r.source = &source{client: &r.client, repo: repo}
	return r, nil
}

// CheckRepository is ErrReference if a text names no repository.
func CheckRepository(text string) error {
	r, err := new(Client).Repository(text)
	if err == nil {
		r.Close()
	}
	return err
}

// String returns its name, with the registry.
func (r *Repository) String() string { return r.repo.Name() }

// Close closes its connections.
func (r *Repository) Close() {
	if t, ok := r.client.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// Temporary is that of the Client.
func (r *Repository) Temporary() (dir string, done func() error, err error) {
	return r.client.Temporary()
}

// Artifact is a manifest of a registry, whatever its blobs are.
type Artifact struct {
	Manifest v1.Manifest
	Digest   digest.Digest // of the manifest

	puller *puller
}

// Artifact asks for the manifest that has a tag; ErrNotFound if there is none. An index is image.ErrFormat.
func (r *Repository) Artifact(ctx context.Context, tag string) (*Artifact, error) {
	a, err := r.artifact(ctx, tag)
	if err != nil {
		return nil, fmt.Errorf("artifact %s:%s: %w", r.repo, tag, err)
	}
	return a, nil
}

func (r *Repository) artifact(ctx context.Context, tag string) (*Artifact, error) {
	p := &puller{client: &r.client, sources: []*source{r.source}}
	root, err := p.resolve(ctx, r.repo.Tag(tag))
	if err != nil {
		return nil, err
	}
	if root.MediaType != v1.MediaTypeImageManifest {
		return nil, fmt.Errorf("%w: it is of the type %.100q, not a manifest of OCI", image.ErrFormat, root.MediaType)
	}
	a := &Artifact{Digest: root.Digest, puller: p}
	if err := json.Unmarshal(p.document, &a.Manifest); err != nil {
		return nil, fmt.Errorf("%w: %w", image.ErrFormat, err)
	}
	return a, nil
}

// Document is a blob of at most so many bytes, verified; image.ErrLimit if its descriptor says that it has more.
func (a *Artifact) Document(ctx context.Context, d v1.Descriptor, most int64) ([]byte, error) {
	if err := checkBlob(d, most); err != nil {
		return nil, err
	}
	r, err := a.puller.openDocument(ctx, d)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// Blob downloads a blob of at most so many bytes to a file, verified; image.ErrLimit if its descriptor says that it
// has more. The caller closes the file, and then calls done, which removes it. moved is told of bytes that are there, or,
// below 0, not any more.
func (a *Artifact) Blob(ctx context.Context, d v1.Descriptor, most int64, moved func(int64)) (f *os.File, done func() error, err error) {
	if err := checkBlob(d, most); err != nil {
		return nil, nil, err
	}
	c := a.puller.client
	if err := os.MkdirAll(c.Downloads, 0o700); err != nil {
		return nil, nil, err
	}
	if f, err = c.fetch(ctx, a.puller.sources, d, moved); err != nil {
		return nil, nil, err
	}
	return f, func() error { return remove(c.blobPath(d.Digest)) }, nil
}

// checkBlob verifies what a descriptor says before anything is made of it, such as a path.
func checkBlob(d v1.Descriptor, most int64) error {
	switch err := d.Digest.Validate(); {
	case err != nil:
		return fmt.Errorf("%w: the digest %.100q: %w", image.ErrFormat, d.Digest, err)
	case d.Size < 0 || d.Size > most:
		return fmt.Errorf("%w: the blob %s of %d bytes; at most %d", image.ErrLimit, d.Digest, d.Size, most)
	}
	return nil
}

// Push pushes the manifest with a digest, and its blobs, from an OCI image layout, and gives it a tag. What the registry
// has is not sent.
func (r *Repository) Push(ctx context.Context, dir string, manifest digest.Digest, tag string) error {
	hash, err := ggcr.NewHash(manifest.String())
	if err != nil {
		return err
	}
	img, err := layout.Path(dir).Image(hash)
	if err != nil {
		return err
	}
	to := r.repo.Tag(tag)
	options := r.client.options(ctx, to, nil)
	if err := remote.Write(to, img, options...); err != nil {
		return fmt.Errorf("push %s: %w", to, errors.Join(explain(err), ctx.Err()))
	}
	// Not by its tag: another one can have pushed what it has made of the same.
	return arrived(r.repo.Digest(manifest.String()), manifest.String(), options)
}
