package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/image"
	"holdfast/worker/snapshot"
)

// documentTypes are those that are asked for.
var documentTypes = []string{
	v1.MediaTypeImageIndex, v1.MediaTypeImageManifest,
	"application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.docker.distribution.manifest.v2+json",
}

// Pull imports an image of a registry, as image.Import does. Of the options, Format and Ref mean nothing. Layers that
// the store has are not downloaded. When it fails, what was downloaded stays for a day, and the next Pull
// goes on with it. progress may be nil.
func (c *Client) Pull(ctx context.Context, namespace *snapshot.Namespace, ref string, o image.Options, progress *Progress) (*image.Result, error) {
	r, err := c.pull(ctx, namespace, ref, o, progress)
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", ref, err)
	}
	return r, nil
}

func (c *Client) pull(ctx context.Context, namespace *snapshot.Namespace, ref string, o image.Options, progress *Progress) (*image.Result, error) {
	reference, err := c.parse(ref)
	if err != nil {
		return nil, err
	}
	sources, err := c.sources(reference.Context())
	if err != nil {
		return nil, err
	}
	if err := c.Clean(ctx); err != nil {
		return nil, err
	}
	if progress == nil {
		progress = &Progress{}
	}
	p := &puller{client: c, sources: sources, progress: progress, limits: o.Limits, blobs: map[digest.Digest]*blob{}}
	root, err := p.resolve(ctx, reference)
	if err != nil {
		return nil, err
	}
	ctx, p.cancel = context.WithCancelCause(ctx)
	r, err := image.ImportSource(ctx, namespace, root, p, o)
	if cause := context.Cause(ctx); err != nil && errors.Is(err, context.Canceled) && errors.Is(cause, errDownload) {
		err = cause
	}
	return r, errors.Join(err, p.end(err == nil))
}

// errDownload is of a download that has failed, for which the import ends.
var errDownload = errors.New("download")

// puller is one Pull: the source of its import.
type puller struct {
	client   *Client
	sources  []*source
	progress *Progress
	limits   image.Limits
	root     v1.Descriptor
	document []byte // of root

	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup
	mu     sync.Mutex
	blobs  map[digest.Digest]*blob
}

// blob is a layer that is downloaded, or going to be.
type blob struct {
	done chan struct{} // closed when file and err are there
	file *os.File
	err  error
}

// resolve finds out what a reference is of.
func (p *puller) resolve(ctx context.Context, ref name.Reference) (root v1.Descriptor, err error) {
	var errs []error
	for _, s := range p.sources {
		err = s.retry(ctx, func() (int64, error) {
			p.document, p.root, err = s.manifest(ctx, ref.Identifier())
			return 0, err
		})
		if err == nil {
			if want, ok := ref.(name.Digest); ok && want.DigestStr() != p.root.Digest.String() {
				err = fmt.Errorf("%s: %w: it has the digest %s", ref, image.ErrDigest, p.root.Digest)
			}
		}
		if err == nil {
			return p.root, nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return root, errors.Join(errs...)
}

// manifest asks for the manifest or index that has a tag or digest.
func (s *source) manifest(ctx context.Context, id string) (b []byte, d v1.Descriptor, err error) {
	header := http.Header{"Accept": {strings.Join(documentTypes, ", ")}}
	resp, err := s.get(ctx, "manifests/"+id, header, http.StatusOK)
	if err != nil {
		return nil, d, err
	}
	defer resp.Body.Close()
	if b, err = io.ReadAll(resp.Body); err != nil {
		return nil, d, err
	}
	d = v1.Descriptor{Digest: digest.FromBytes(b), Size: int64(len(b))}
	if asked, e := digest.Parse(id); e == nil && asked.Algorithm() != digest.SHA256 {
		d.Digest = asked.Algorithm().FromBytes(b)
	}
	if said, e := digest.Parse(resp.Header.Get("Docker-Content-Digest")); e == nil && said != said.Algorithm().FromBytes(b) {
		return nil, d, fmt.Errorf("%s: manifest %s: %w: the registry says that it is %s, and it is %s", s.repo, id, image.ErrDigest, said, d.Digest)
	}
	d.MediaType, err = documentType(b, resp.Header.Get("Content-Type"))
	if err != nil {
		err = fmt.Errorf("%s: manifest %s: %w", s.repo, id, err)
	}
	return b, d, err
}

// documentType is the type of a manifest or index: what it says itself, or else its header.
func documentType(b []byte, header string) (string, error) {
	var says struct {
		SchemaVersion int    `json:"schemaVersion"`
		MediaType     string `json:"mediaType"`
	}
	if err := json.Unmarshal(b, &says); err != nil {
		return "", fmt.Errorf("%w: %w", image.ErrFormat, err)
	}
	kind := says.MediaType
	if kind == "" {
		kind, _, _ = mime.ParseMediaType(header)
	}
	if slices.Contains(documentTypes, kind) {
		return kind, nil
	}
	return "", fmt.Errorf("%w: schema version %d of the type %.100q; images of OCI and of Docker's schema 2 are read", image.ErrFormat, says.SchemaVersion, kind)
}

// Open is called by the import.
func (p *puller) Open(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	if d.Digest == p.root.Digest {
		return io.NopCloser(bytes.NewReader(p.document)), nil
	}
	p.mu.Lock()
	b := p.blobs[d.Digest]
	p.mu.Unlock()
	switch {
	case b == nil && strings.HasSuffix(d.MediaType, "+json"):
		return p.openDocument(ctx, d)
	case b == nil: // a layer that was there a moment ago
		if err := p.Need(ctx, []v1.Descriptor{d}); err != nil {
			return nil, err
		}
		return p.Open(ctx, d)
	}
	select {
	case <-b.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if b.err != nil {
		return nil, b.err
	}
	return io.NopCloser(io.NewSectionReader(b.file, 0, d.Size)), nil
}

// openDocument asks for a manifest, an index or a config.
func (p *puller) openDocument(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	path := "blobs/"
	if slices.Contains(documentTypes, d.MediaType) {
		path = "manifests/"
	}
	var errs []error
	for _, s := range p.sources {
		var b []byte
		err := s.retry(ctx, func() (int64, error) {
			resp, err := s.get(ctx, path+d.Digest.String(), http.Header{"Accept": {d.MediaType + ", */*"}}, http.StatusOK)
			if err != nil {
				return 0, err
			}
			defer resp.Body.Close()
			b, err = io.ReadAll(io.LimitReader(resp.Body, d.Size+1))
			return 0, err
		})
		if err == nil && (int64(len(b)) != d.Size || d.Digest.Algorithm().FromBytes(b) != d.Digest) {
			err = fmt.Errorf("%s: %s: %w: what the registry sends has not its digest, or not %d bytes", s.repo, d.Digest, image.ErrDigest, d.Size)
		}
		if err == nil {
			return io.NopCloser(bytes.NewReader(b)), nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// Need is called by the import. It begins the downloads, in this order.
func (p *puller) Need(ctx context.Context, layers []v1.Descriptor) error {
	most, sum := p.limits.Bytes, int64(0)
	if most == 0 {
		most = image.DefaultBytes
	}
	for _, d := range layers {
		if d.Size > most-sum {
			return fmt.Errorf("%w: layers of more than %d bytes", image.ErrLimit, most)
		}
		sum += d.Size
	}
	if len(layers) == 0 {
		return nil
	}
	if err := os.MkdirAll(p.client.Downloads, 0o700); err != nil {
		return err
	}
	begun := make([]*blob, len(layers))
	p.mu.Lock()
	for i, d := range layers {
		if p.blobs[d.Digest] == nil { // the same layer can be there twice
			begun[i] = &blob{done: make(chan struct{})}
			p.blobs[d.Digest] = begun[i]
			p.progress.total.Add(d.Size)
		}
	}
	p.mu.Unlock()
	next := make(chan int)
	p.tasks.Go(func() {
		defer close(next)
		for i := range layers {
			if begun[i] != nil {
				next <- i
			}
		}
	})
	for range min(p.client.jobs(), len(layers)) {
		p.tasks.Go(func() {
			for i := range next {
				p.download(ctx, layers[i], begun[i])
			}
		})
	}
	return nil
}

// download downloads a layer. If that fails, it ends the import, which may be waiting for another one.
func (p *puller) download(ctx context.Context, d v1.Descriptor, b *blob) {
	defer close(b.done)
	if b.err = ctx.Err(); b.err != nil {
		return
	}
	b.file, b.err = p.client.fetch(ctx, p.sources, d, func(n int64) { p.progress.done.Add(n) })
	if b.err != nil && ctx.Err() == nil {
		p.cancel(fmt.Errorf("%w: %w", errDownload, b.err))
	}
}

// end ends all downloads. What is not needed any more is removed.
func (p *puller) end(done bool) (err error) {
	p.cancel(nil)
	p.tasks.Wait()
	for d, b := range p.blobs {
		if b.file == nil {
			continue
		}
		err = errors.Join(err, b.file.Close())
		if done {
			err = errors.Join(err, remove(p.client.blobPath(d)))
		}
	}
	return err
}
