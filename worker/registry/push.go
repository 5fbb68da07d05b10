package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"holdfast/worker/image"
	"holdfast/worker/snapshot"
)

// Pushed is an image that was pushed.
type Pushed struct {
	Ref    string // with all that was left out of it
	Digest string // of the manifest
	Layers int
	Bytes  int64 // of all layers, those included that the registry had
}

// Push exports a base or a committed snapshot as image.Export does, and pushes it to a reference, which is
// not one by digest. Blobs that the registry has are not sent, so a Push that was interrupted goes on, by
// whole layers, with the next one. The image is there when all that it needs is. progress may be nil.
func (c *Client) Push(ctx context.Context, namespace *snapshot.Namespace, from, ref string, o image.ExportOptions, progress *Progress) (*Pushed, error) {
	p, err := c.push(ctx, namespace, from, ref, o, progress)
	if err != nil {
		return nil, fmt.Errorf("push %s: %w", ref, err)
	}
	return p, nil
}

// CheckPush is ErrReference if nothing can be pushed to a reference.
func (c *Client) CheckPush(ref string) error {
	r, err := c.parse(ref)
	if err != nil {
		return err
	}
	if _, ok := r.(name.Digest); ok {
		return fmt.Errorf("%s: %w to push to: the digest is that of what is pushed; give a tag", ref, ErrReference)
	}
	return nil
}

func (c *Client) push(ctx context.Context, namespace *snapshot.Namespace, from, ref string, o image.ExportOptions, progress *Progress) (_ *Pushed, err error) {
	if err := c.CheckPush(ref); err != nil {
		return nil, err
	}
	to, err := c.parse(ref)
	if err != nil {
		return nil, err
	}
	if err := c.allowed(ctx, to); err != nil {
		return nil, err
	}
	if err := c.Clean(ctx); err != nil {
		return nil, err
	}
	dir, done, err := c.Temporary()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	d, err := image.Export(ctx, namespace, from, dir, o)
	if err != nil {
		return nil, err
	}
	hash, err := ggcr.NewHash(d.Digest.String())
	if err != nil {
		return nil, err
	}
	img, err := layout.Path(dir).Image(hash)
	if err != nil {
		return nil, err
	}
	p := &Pushed{Ref: to.Name(), Digest: d.Digest.String()}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	for _, l := range layers {
		size, err := l.Size()
		if err != nil {
			return nil, err
		}
		p.Bytes += size
	}
	p.Layers = len(layers)
	// The library's own progress is not used: it can be told of bytes when it has ended, and panics.
	options := c.options(ctx, to, progress)
	if progress != nil {
		progress.total.Store(p.Bytes)
	}
	if err := remote.Write(to, img, options...); err != nil {
		return nil, explain(err)
	}
	return p, arrived(to, p.Digest, options)
}

// allowed asks the registry whether it would take an image, before one is made. What may change is no answer.
func (c *Client) allowed(ctx context.Context, to name.Reference) error {
	base := c.base(to.Context().Registry)
	base.also = ctx // the library has none here
	err := remote.CheckPushPermission(to, c.keychain(), base)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && new(source).temporary(err) {
		return nil
	}
	return explain(err)
}

// options are those of the library for a registry.
func (c *Client) options(ctx context.Context, to name.Reference, progress *Progress) []remote.Option {
	base := c.base(to.Context().Registry)
	if progress != nil {
		base.sent = &progress.done
	}
	wait := remote.Backoff{Duration: c.backoff(1), Factor: 2, Jitter: 0.1, Steps: attempts}
	return []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(base), remote.WithAuthFromKeychain(c.keychain()),
		remote.WithJobs(c.jobs()), remote.WithRetryBackoff(wait),
	}
}

// arrived looks whether the registry has what was pushed under its name.
func arrived(to name.Reference, digest string, options []remote.Option) error {
	got, err := remote.Head(to, options...)
	switch {
	case err == nil && got.Digest.String() == digest:
		return nil
	case err == nil:
		return fmt.Errorf("%s: %w: after the push of %s it is %s", to, image.ErrDigest, digest, got.Digest)
	}
	return explain(err)
}
