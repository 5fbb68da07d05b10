package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// Delta is what a snapshot changes, as a layer.
type Delta struct {
	Blob   v1.Descriptor // of the layer, which is compressed
	DiffID digest.Digest // of the archive, not compressed
}

// ExportDelta writes what a committed snapshot has and its parent has not as one layer into dir, an empty directory
// that becomes an OCI image layout when Seal is called. Of the options Show and Compression count. The caller
// holds the snapshot. It is for Linux.
func ExportDelta(ctx context.Context, namespace *snapshot.Namespace, info snapshot.Info, dir string, o ExportOptions) (d Delta, err error) {
	e := &export{ctx: ctx, namespace: namespace, dir: dir, o: o}
	if err := e.blobs(); err != nil {
		return d, err
	}
	chain := []snapshot.Info{info}
	if info.Parent != "" {
		parent, err := namespace.Stat(ctx, info.Parent)
		if err != nil {
			return d, err
		}
		chain = []snapshot.Info{parent, info}
	}
	lower := ""
	for i, one := range chain {
		path, release, shown := e.show(one)
		if shown != nil {
			return d, fmt.Errorf("snapshot %q: %w", one.Name, shown)
		}
		defer func() { err = errors.Join(err, release()) }()
		if i < len(chain)-1 {
			lower = path
			continue
		}
		if err := e.layer(one, lower, path); err != nil {
			return d, err
		}
	}
	return Delta{e.manifest.Layers[0], e.image.RootFS.DiffIDs[0]}, nil
}

// Seal completes an OCI image layout in dir, which has the layers of a manifest, with a document as its config and
// the manifest itself, and returns what describes that.
func Seal(dir string, config []byte, configType string, m v1.Manifest) (d v1.Descriptor, err error) {
	e := &export{dir: dir}
	if err := e.blobs(); err != nil {
		return d, err
	}
	m.Versioned, m.MediaType = specs.Versioned{SchemaVersion: 2}, v1.MediaTypeImageManifest
	if m.Config, err = e.document(configType, json.RawMessage(config)); err != nil {
		return d, err
	}
	if d, err = e.document(v1.MediaTypeImageManifest, m); err != nil {
		return d, err
	}
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{d}}
	if err := e.file(v1.ImageIndexFile, index); err != nil {
		return d, err
	}
	return d, e.file(v1.ImageLayoutFile, v1.ImageLayout{Version: v1.ImageLayoutVersion})
}

// blobs makes the directory of the blobs.
func (e *export) blobs() error {
	return os.MkdirAll(filepath.Join(e.dir, v1.ImageBlobsDir, string(digest.SHA256)), 0o755)
}

// ApplyDelta extracts a layer into what mounts show of a snapshot that was prepared on another, as Import does, and
// verifies it. Of the options Limits and Mounts count. A layer of which something would be left out is ErrUnsafe: it
// would be another. When it fails, the snapshot has anything. It is for Linux.
func ApplyDelta(ctx context.Context, mounts []mount.Mount, parent string, d Delta, r io.Reader, o Options) error {
	how, ok := layerTypes[d.Blob.MediaType]
	if !ok {
		return fmt.Errorf("%w: a layer of the type %.100q", ErrFormat, d.Blob.MediaType)
	}
	for _, one := range []digest.Digest{d.Blob.Digest, d.DiffID} {
		if err := one.Validate(); err != nil {
			return fmt.Errorf("%w: the digest %.100q: %w", ErrFormat, one, err)
		}
	}
	o.Devices = DevicesRefuse
	im := &importer{ctx: ctx, o: o, budget: &budget{limits: o.Limits.filled()}}
	im.o.Progress = &Progress{}
	in := &incoming{layer: Layer{DiffID: d.DiffID, Snapshot: d.DiffID.String()}, parent: parent, descriptor: &d.Blob, compression: how,
		open: func() (io.ReadCloser, error) { return io.NopCloser(r), nil }}
	if err := im.fill(in, mounts); err != nil {
		return err
	}
	if in.layer.LeftOut != (LeftOut{}) {
		return fmt.Errorf("%w: not all of it can be extracted: %s", ErrUnsafe, in.layer.LeftOut.label())
	}
	return nil
}
