package image

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/snapshot"
)

// Compression is how layers are compressed that Export writes.
type Compression string

const (
	CompressGzip Compression = "gzip" // which everything reads
	CompressZstd Compression = "zstd" // faster and smaller
)

// ExportOptions say how a snapshot is exported.
type ExportOptions struct {
	// Show shows the content of a committed snapshot at a path, until release. It is needed.
	Show func(ctx context.Context, info snapshot.Info) (path string, release func() error, err error)

	Compression Compression // "": CompressGzip
	Ref         string      // the name of the image in the layout; "": none
	Platform    Platform    // zero: what the base says, or else that of this machine

	// Command is what has made a snapshot, for the history of the image; nil: that is not told.
	Command func(info snapshot.Info) string

	// Progress counts layers, each when it is written; nil: nothing is counted.
	Progress *ExportProgress
}

// ExportProgress is how far an Export has come. It may be looked at meanwhile.
type ExportProgress struct{ done, total atomic.Int64 }

// Layers is how many layers were written, of how many.
func (p *ExportProgress) Layers() (done, total int64) { return p.done.Load(), p.total.Load() }

// exportLease begins the names of leases on what is exported, which last a day should the process be killed.
const exportLease = "export-"

// Export writes a base, or a committed snapshot, as an image into dir, an empty directory that becomes an OCI image
// layout. Each snapshot of its chain is a layer, which has what Write of package layer writes: the same content and
// times give the same layers. What the image runs is what the labels say, see ConfigOf. Nothing is flushed. When
// it fails, dir may have anything. It is for Linux.
func Export(ctx context.Context, namespace *snapshot.Namespace, name, dir string, o ExportOptions) (v1.Descriptor, error) {
	e := &export{ctx: ctx, namespace: namespace, dir: dir, o: o}
	d, err := e.run(name)
	if err != nil {
		err = fmt.Errorf("export %s: %w", name, err)
	}
	return d, err
}

type export struct {
	ctx       context.Context
	namespace *snapshot.Namespace
	dir       string
	o         ExportOptions
	image     v1.Image
	manifest  v1.Manifest

	delta bool // of which nothing may be left out
}

func (e *export) run(name string) (d v1.Descriptor, err error) {
	named, err := e.namespace.Stat(e.ctx, name)
	if err != nil {
		return d, err
	}
	chain, release, err := Chain(e.ctx, e.namespace, name)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if e.o.Progress != nil {
		e.o.Progress.total.Store(int64(len(chain)))
	}
	if err := e.begin(named, chain); err != nil {
		return d, err
	}
	if err := e.layers(chain); err != nil {
		return d, err
	}
	if e.manifest.Config, err = e.document(v1.MediaTypeImageConfig, e.image); err != nil {
		return d, err
	}
	if d, err = e.document(v1.MediaTypeImageManifest, e.manifest); err != nil {
		return d, err
	}
	listed := d
	listed.Platform = &v1.Platform{OS: e.image.OS, Architecture: e.image.Architecture, Variant: e.image.Variant}
	if e.o.Ref != "" {
		listed.Annotations = map[string]string{v1.AnnotationRefName: e.o.Ref}
	}
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{listed}}
	if err := e.file(v1.ImageIndexFile, index); err != nil {
		return d, err
	}
	return d, e.file(v1.ImageLayoutFile, v1.ImageLayout{Version: v1.ImageLayoutVersion})
}

// Chain is a base or committed snapshot with those below it, the lowest first. They are leased until release.
func Chain(ctx context.Context, namespace *snapshot.Namespace, name string) (chain []snapshot.Info, release func() error, err error) {
	top, err := Resolve(ctx, namespace, name)
	if err != nil {
		return nil, nil, err
	}
	lease := exportLease + rand.Text()
	if err := namespace.Lease(ctx, lease, top.Name, leaseTime); err != nil {
		return nil, nil, err
	}
	release = func() error { return namespace.ReleaseAll(context.WithoutCancel(ctx), lease) }
	for info := top; ; {
		chain = append(chain, info)
		if info.Parent == "" {
			slices.Reverse(chain)
			return chain, release, nil
		}
		if info, err = namespace.Stat(ctx, info.Parent); err != nil {
			return nil, nil, errors.Join(err, release())
		}
	}
}

// begin fills in what does not depend on content.
func (e *export) begin(named snapshot.Info, chain []snapshot.Info) error {
	config, err := ConfigOf(named)
	if err != nil {
		return err
	}
	p := e.o.Platform
	if p == (Platform{}) {
		if p, err = ParsePlatform(platformOf(named, chain)); err != nil {
			return err
		}
	}
	created := chain[len(chain)-1].Created
	e.image = v1.Image{
		Created: &created, Platform: v1.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant},
		Config: v1.ImageConfig{Env: config.Env, Cmd: config.Cmd, Entrypoint: config.Entrypoint, WorkingDir: config.Workdir, User: config.User},
		RootFS: v1.RootFS{Type: "layers"},
	}
	e.manifest = v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest}
	return e.blobs()
}

// platformOf is the platform that a base says it is for, or a snapshot below it.
func platformOf(named snapshot.Info, chain []snapshot.Info) string {
	platform := named.Labels[LabelPlatform]
	for i := len(chain) - 1; i >= 0 && platform == ""; i-- {
		platform = chain[i].Labels[LabelPlatform]
	}
	return platform
}

// layers writes all layers. The tree of each is shown as long as that on top of it is compared with it.
func (e *export) layers(chain []snapshot.Info) (err error) {
	lower, hide := "", func() error { return nil }
	defer func() { err = errors.Join(err, hide()) }()
	for i, info := range chain {
		upper, release, err := e.show(info)
		if err != nil {
			return fmt.Errorf("snapshot %q: %w", info.Name, err)
		}
		err = errors.Join(e.layer(info, lower, upper), hide())
		lower, hide = upper, release
		if err != nil {
			return fmt.Errorf("layer %d of %d (%s): %w", i+1, len(chain), info.Name, err)
		}
		if e.o.Progress != nil {
			e.o.Progress.done.Add(1)
		}
	}
	return nil
}

// show shows a snapshot, which stays as long as it is shown. Another one that has its name by now is snapshot.ErrNotFound.
func (e *export) show(info snapshot.Info) (path string, release func() error, err error) {
	path, release, err = e.o.Show(e.ctx, info)
	if err != nil {
		return "", nil, err
	}
	now, err := e.namespace.Stat(e.ctx, info.Name)
	if err == nil && now.ID != info.ID {
		err = fmt.Errorf("%w: it was replaced by another one of that name", snapshot.ErrNotFound)
	}
	if err != nil {
		return "", nil, errors.Join(err, release())
	}
	return path, release, nil
}

// layer writes a layer, and records it.
func (e *export) layer(info snapshot.Info, lower, upper string) (err error) {
	temp, err := os.CreateTemp(e.dir, "layer-")
	if err != nil {
		return err
	}
	packed, plain := digest.SHA256.Digester(), digest.SHA256.Digester()
	out := bufio.NewWriterSize(io.MultiWriter(temp, packed.Hash()), 256<<10)
	d := v1.Descriptor{MediaType: v1.MediaTypeImageLayerGzip}
	var z io.WriteCloser
	var size, expanded tally
	sized := io.MultiWriter(out, &size)
	switch cmp.Or(e.o.Compression, CompressGzip) {
	case CompressGzip:
		z = gzip.NewWriter(sized)
	case CompressZstd:
		d.MediaType = v1.MediaTypeImageLayerZstd
		z, err = zstd.NewWriter(sized, zstd.WithEncoderConcurrency(1)) // with others the bytes would depend on how many
	default:
		err = fmt.Errorf("%w: the compression %q", ErrFormat, e.o.Compression)
	}
	if err == nil {
		err = errors.Join(e.write(&ratio{io.MultiWriter(z, plain.Hash(), &expanded), e, &size, &expanded}, lower, upper), z.Close(), out.Flush())
	}
	d.Size = int64(size)
	d.Digest = packed.Digest()
	if err = errors.Join(err, temp.Chmod(0o644), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), e.blob(d.Digest))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(temp.Name()))
	}
	e.manifest.Layers = append(e.manifest.Layers, d)
	e.image.RootFS.DiffIDs = append(e.image.RootFS.DiffIDs, plain.Digest())
	h := v1.History{Created: &info.Created}
	if e.o.Command != nil {
		h.CreatedBy = e.o.Command(info)
	}
	e.image.History = append(e.image.History, h)
	return nil
}

func (e *export) blob(d digest.Digest) string {
	return filepath.Join(e.dir, v1.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

// document writes a JSON document as a blob.
func (e *export) document(mediaType string, v any) (d v1.Descriptor, err error) {
	b, err := json.Marshal(v)
	if err != nil {
		return d, err
	}
	d = v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(b), Size: int64(len(b))}
	return d, os.WriteFile(e.blob(d.Digest), b, 0o644)
}

// file writes a file of the layout that is not a blob.
func (e *export) file(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(e.dir, name), b, 0o644)
}
