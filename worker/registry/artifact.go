package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	ggcr "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/image"
)

// Artifact is a manifest of a registry, whatever its blobs are.
type Artifact struct {
	Manifest v1.Manifest
	Digest   digest.Digest // of the manifest

	puller *puller
}

// Artifact asks for the manifest of a reference; ErrNotFound if there is none. An index is image.ErrFormat.
func (c *Client) Artifact(ctx context.Context, ref string) (*Artifact, error) {
	a, err := c.artifact(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("artifact %s: %w", ref, err)
	}
	return a, nil
}

func (c *Client) artifact(ctx context.Context, ref string) (*Artifact, error) {
	reference, err := c.parse(ref)
	if err != nil {
		return nil, err
	}
	sources, err := c.sources(reference.Context())
	if err != nil {
		return nil, err
	}
	p := &puller{client: c, sources: sources}
	root, err := p.resolve(ctx, reference)
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
// has more. The caller closes the file, and then calls done, which removes it.
func (a *Artifact) Blob(ctx context.Context, d v1.Descriptor, most int64) (f *os.File, done func() error, err error) {
	if err := checkBlob(d, most); err != nil {
		return nil, nil, err
	}
	c := a.puller.client
	if err := os.MkdirAll(c.Downloads, 0o700); err != nil {
		return nil, nil, err
	}
	if f, err = c.fetch(ctx, a.puller.sources, d, func(int64) {}); err != nil {
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

// PushLayout pushes the manifest with a digest, and its blobs, from an OCI image layout to a reference, which is not
// one by digest. What the registry has is not sent.
func (c *Client) PushLayout(ctx context.Context, dir string, manifest digest.Digest, ref string) error {
	if err := c.CheckPush(ref); err != nil {
		return err
	}
	to, err := c.parse(ref)
	if err != nil {
		return err
	}
	hash, err := ggcr.NewHash(manifest.String())
	if err != nil {
		return err
	}
	img, err := layout.Path(dir).Image(hash)
	if err != nil {
		return err
	}
	options := c.options(ctx, to, nil)
	if err := remote.Write(to, img, options...); err != nil {
		return fmt.Errorf("push %s: %w", ref, errors.Join(explain(err), ctx.Err()))
	}
	return arrived(to, manifest.String(), options)
}
