package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/layer"
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
// holds the snapshot. ErrUnfit is of what ApplyDelta would not make the same again; it is snapshot.ErrNotFound if
// another snapshot has the name of info by now. It is for Linux.
func ExportDelta(ctx context.Context, namespace *snapshot.Namespace, info snapshot.Info, dir string, o ExportOptions) (d Delta, err error) {
	e := &export{ctx: ctx, namespace: namespace, dir: dir, o: o, delta: true}
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
		// What is shown stays. As long as the snapshot is there its parent is, so both are those that were meant.
		if now, err := namespace.Stat(ctx, info.Name); err != nil || now.ID != info.ID {
			return d, errors.Join(err, fmt.Errorf("snapshot %q: %w: it was replaced by another one of that name", info.Name, snapshot.ErrNotFound))
		}
		if err := e.layer(one, lower, path); err != nil {
			return d, err
		}
	}
	return Delta{e.manifest.Layers[0], e.image.RootFS.DiffIDs[0]}, nil
}

// ErrUnfit: a snapshot has something that a Delta cannot have.
var ErrUnfit = errors.New("a layer cannot have it")

// write writes the archive of a layer.
func (e *export) write(w io.Writer, lower, upper string) error {
	if !e.delta {
		return layer.Write(e.ctx, w, lower, upper)
	}
	b := &budget{limits: Limits{}.filled()}
	err := layer.WriteAll(e.ctx, w, lower, upper, func(path string, f *layer.File) error {
		err := errors.Join(b.entry(path), b.content(f.Size))
		if why := unfit(f); why != "" {
			err = errors.New(why)
		}
		if err != nil {
			return fmt.Errorf("%q: %w: %w", path, ErrUnfit, err)
		}
		return nil
	})
	if errors.Is(err, layer.ErrName) {
		return fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	return err
}

// tally counts what is written.
type tally int64

func (t *tally) Write(p []byte) (int, error) {
	*t += tally(len(p))
	return len(p), nil
}

// ratio is what the archive of a layer is written to. For a delta it ends with ErrUnfit when that has shrunk to less than
// ApplyDelta extracts: large files of zeros do not fill disks with nothing.
type ratio struct {
	io.Writer
	e              *export
	size, expanded *tally
}

func (r *ratio) Write(p []byte) (int, error) {
	l := Limits{}.filled()
	if n := int64(*r.expanded); r.e.delta && n > l.RatioFrom && n/l.Ratio >= int64(*r.size) {
		return 0, fmt.Errorf("%w: %d bytes that shrink to %d", ErrUnfit, n, *r.size)
	}
	return r.Writer.Write(p)
}

// unfit says why ApplyDelta would not make a file the same again; "": it would.
func unfit(f *layer.File) string {
	kind := f.Type()
	switch kind {
	case fs.ModeSocket:
		return "a socket"
	case 0, fs.ModeDir, fs.ModeSymlink, fs.ModeNamedPipe:
	default:
		return "a device"
	}
	for name := range f.Xattrs {
		switch {
		case strings.Contains(name, "="), len(name) > maxComponent:
			return fmt.Sprintf("the extended attribute %.100q", name)
		case strings.HasPrefix(name, "user.") && kind != fs.ModeSymlink, name == "security.capability" && kind == 0:
		default:
			return fmt.Sprintf("the extended attribute %.100q on a file of its type", name)
		}
	}
	return ""
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
