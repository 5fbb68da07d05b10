package image

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/snapshot"
)

// Source is where an image comes from that is not in a file, such as a registry. What it gives is not trusted: it is
// compared with its descriptor.
type Source interface {
	// Open opens the document or layer of a descriptor, whose digest is one in form, and whose size is not negative.
	Open(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)

	// Need is told once, before the first layer is opened, which layers are going to be: those that the store does
	// not have. They are opened in this order. An error ends the import.
	Need(ctx context.Context, layers []v1.Descriptor) error
}

// ImportSource imports the image that a manifest is of, or the one in an index that has the platform, as Import does.
// Of Options, Format and Ref mean nothing. The import ends with the first layer that its source cannot give.
func ImportSource(ctx context.Context, namespace *snapshot.Namespace, root v1.Descriptor, s Source, o Options) (*Result, error) {
	o.Ref = ""
	l := &layout{get: func(d v1.Descriptor) (io.ReadCloser, error) { return s.Open(ctx, d) }, need: s.Need, close: func() error { return nil }}
	l.root = &v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: []v1.Descriptor{root}}
	return importLayout(ctx, namespace, l, o)
}

// index is the index of a layout.
func (l *layout) index() (index v1.Index, err error) {
	if l.root != nil {
		return *l.root, nil
	}
	b, err := l.file(v1.ImageIndexFile)
	if err != nil {
		return index, err
	}
	if err := decode(b, &index); err != nil {
		return index, fmt.Errorf("%s: %w", v1.ImageIndexFile, err)
	}
	return index, nil
}

// free is ErrExists if the base cannot get its name as there is another with it. So it is known before layers are read.
func (im *importer) free(top string) error {
	if im.o.Name == "" || im.o.Replace {
		return nil
	}
	info, err := im.namespace.Stat(im.ctx, im.o.Name)
	switch {
	case errors.Is(err, snapshot.ErrNotFound):
		return nil
	case err == nil && info.Parent != top && info.Labels[LabelBase] != "":
		return fmt.Errorf("base %q: %w, and is another", im.o.Name, snapshot.ErrExists)
	}
	return err
}

// tell tells the source of a layout which layers are going to be read.
func (im *importer) tell(l *layout, chosen *image) error {
	if l.need == nil {
		return nil
	}
	if err := im.free(chosen.chain[len(chosen.chain)-1].String()); err != nil {
		return err
	}
	var missing []v1.Descriptor
	for i, d := range chosen.manifest.Layers {
		info, err := im.namespace.Stat(im.ctx, chosen.chain[i].String())
		switch {
		case errors.Is(err, snapshot.ErrNotFound), err == nil && im.o.Repair && im.namespace.Store().Unusable(&info) != nil:
			missing = append(missing, d)
		case err != nil:
			return err
		}
	}
	return l.need(im.ctx, missing)
}
