package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/internal/patient"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// Format is what a file to import is.
type Format string

const (
	FormatAuto Format = ""    // an OCI image layout if it is one, otherwise an archive of files
	FormatOCI  Format = "oci" // an OCI image layout: a directory, or a tar archive of one that is not compressed
	FormatTar  Format = "tar" // a tar archive of files: plain, or compressed with gzip or zstd
)

// Options say what to import, and how. The zero value is good.
type Options struct {
	Format   Format
	Ref      string   // the image of that name in a layout (org.opencontainers.image.ref.name); "": the only one
	Platform Platform // zero: that of this machine

	// Name is what the base is called: a view of that name is made, whose parent is the
	// topmost snapshot. So it cannot be pruned as long as the view is there. "": none is made.
	Name string

	// Replace has a base of that name, if there is one that is another, replaced.
	Replace bool

	// Repair has layers that are there and damaged, or distrusted, extracted again, into the place of what is there,
	// if that has the digest that is recorded: see snapshot.Namespace.Repair, also for when it is refused. It is no
	// search for damage: what is not marked as damaged is not looked at.
	Repair bool

	// NoConfig leaves out the labels that say what the image runs: see Config. They are on
	// the view, or without Name on the topmost snapshot.
	NoConfig bool

	Devices Devices
	Limits  Limits

	// Mounts mounts what has to be looked at: layers that are images (driver erofs), and file
	// systems that are not a directory. nil: these cannot be imported onto others.
	Mounts *mount.Manager

	// Progress is told how far it has come; nil: nothing is.
	Progress *Progress
}

// Layer is one that was imported, or was there.
type Layer struct {
	Snapshot string        // its name: the chain id
	DiffID   digest.Digest // of the archive, not compressed
	Digest   digest.Digest // of the blob; "" of an archive
	Size     int64         // bytes of the blob or archive
	Existed  bool          // it was not made
	Repaired bool          // it was there, and was damaged or distrusted
	LeftOut  LeftOut
}

// Result is what was imported.
type Result struct {
	Name     string // of the base; "" if none was asked for
	Snapshot string // the topmost
	Layers   []Layer
	Image    digest.Digest // of its manifest; "" of an archive
	Ref      string
	Platform string // "" of an archive
	Config   Config
	Existed  bool // everything was there already
	LeftOut  LeftOut
}

// Import imports the file or directory path into a namespace. Of one snapshot only one import is
// under way at a time; others wait and find it. When it fails, what it has made is removed,
// unless it is used already. It is for Linux.
func Import(ctx context.Context, namespace *snapshot.Namespace, path string, o Options) (*Result, error) {
	r, err := importPath(ctx, namespace, path, o)
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", path, err)
	}
	return r, nil
}

func importPath(ctx context.Context, namespace *snapshot.Namespace, path string, o Options) (*Result, error) {
	f, err := patient.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !info.IsDir() {
		return importFile(ctx, namespace, f, info, o)
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	if o.Format == FormatTar {
		return nil, fmt.Errorf("%w: it is a directory, not an archive", ErrFormat)
	}
	l, err := openLayout(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: a directory that is not an OCI image layout: it has no file %s; files are imported as a tar archive: tar -C DIR -cf base.tar .%w", ErrFormat, v1.ImageLayoutFile, reworded{"", err})
	}
	if err != nil {
		return nil, err
	}
	return importLayout(ctx, namespace, l, o)
}

// importFile imports an archive, and closes it.
func importFile(ctx context.Context, namespace *snapshot.Namespace, f *os.File, info fs.FileInfo, o Options) (*Result, error) {
	if !info.Mode().IsRegular() { // it can be read once
		defer f.Close()
		return ImportArchive(ctx, namespace, f, o)
	}
	if o.Format != FormatTar {
		l, err := openLayoutTar(f)
		if err == nil {
			return importLayout(ctx, namespace, l, o)
		}
		if !errors.Is(err, fs.ErrNotExist) || o.Format == FormatOCI {
			return nil, errors.Join(fmt.Errorf("as a tar archive of an OCI image layout: %w", err), f.Close())
		}
	}
	defer f.Close()
	im, err := begin(ctx, namespace, o)
	if err != nil {
		return nil, err
	}
	if o.Progress != nil {
		o.Progress.total.Store(2 * info.Size())
	}
	// Read twice: for its digest, which says whether it is there already, and then to extract it.
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	id, err := im.digest(f)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	l := &incoming{layer: Layer{Snapshot: id.String(), DiffID: id, Size: info.Size()}, open: func() (io.ReadCloser, error) { return io.NopCloser(f), nil }}
	return im.finish(im.one(l))
}

// ImportArchive imports a tar archive of files, plain or compressed with gzip or zstd, that can be read
// only once. Of Options, Ref and Platform mean nothing. When ctx ends it returns, though a Read of r that waits
// for something goes on until that comes.
func ImportArchive(ctx context.Context, namespace *snapshot.Namespace, r io.Reader, o Options) (*Result, error) {
	im, err := begin(ctx, namespace, o)
	if err != nil {
		return nil, err
	}
	r = patient.NewReader(ctx, r)
	l := &incoming{layer: Layer{Size: -1}, open: func() (io.ReadCloser, error) { return io.NopCloser(r), nil }}
	return im.finish(im.one(l))
}

func importLayout(ctx context.Context, namespace *snapshot.Namespace, l *layout, o Options) (r *Result, err error) {
	defer func() { err = errors.Join(err, l.close()) }()
	im, err := begin(ctx, namespace, o)
	if err != nil {
		return nil, err
	}
	if o.Platform == (Platform{}) {
		o.Platform, _ = ParsePlatform("")
	}
	chosen, err := l.choose(o.Ref, o.Platform)
	if err != nil {
		return nil, err
	}
	return im.finish(im.image(l, chosen))
}

// Resolve is the snapshot on which to build: that of which name is a view, as Import makes it, or the
// committed snapshot of that name itself.
func Resolve(ctx context.Context, namespace *snapshot.Namespace, name string) (snapshot.Info, error) {
	info, err := namespace.Stat(ctx, name)
	if err != nil || info.Kind == snapshot.Committed {
		return info, err
	}
	if info.Kind != snapshot.View || info.Parent == "" || info.Labels[LabelBase] == "" {
		return snapshot.Info{}, fmt.Errorf("snapshot %q: %w: %v", name, ErrNotBase, info.Kind)
	}
	return namespace.Stat(ctx, info.Parent)
}
