package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/snapshot"
	copydriver "holdfast/worker/snapshot/driver/copy"
)

var ctx = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var stamp = time.Unix(1_700_000_000, 0)

// Entries of archives.
type entry struct {
	tar.Header
	data string
}

func header(kind byte, name string, mode int64) tar.Header {
	return tar.Header{Typeflag: kind, Name: name, Mode: mode, ModTime: stamp, Uid: os.Geteuid(), Gid: os.Getegid()}
}

func dir(name string) entry { return entry{Header: header(tar.TypeDir, name, 0o755)} }

func file(name, data string) entry {
	e := entry{Header: header(tar.TypeReg, name, 0o644), data: data}
	e.Size = int64(len(data))
	return e
}

func symlink(name, target string) entry {
	e := entry{Header: header(tar.TypeSymlink, name, 0o777)}
	e.Linkname = target
	return e
}

func link(name, target string) entry {
	e := entry{Header: header(tar.TypeLink, name, 0o644)}
	e.Linkname = target
	return e
}

func device(name string, kind byte, major, minor int64) entry {
	e := entry{Header: header(kind, name, 0o600)}
	e.Devmajor, e.Devminor = major, minor
	return e
}

func (e entry) with(change func(h *tar.Header)) entry {
	change(&e.Header)
	return e
}

func xattr(name, value string) func(h *tar.Header) {
	return func(h *tar.Header) { h.PAXRecords = map[string]string{"SCHILY.xattr." + name: value} }
}

func archive(t testing.TB, list ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range list {
		must(t, w.WriteHeader(&e.Header))
		if _, err := w.Write([]byte(e.data)); err != nil {
			t.Fatal(err)
		}
	}
	must(t, w.Close())
	return b.Bytes()
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	must(t, err)
	must(t, w.Close())
	return out.Bytes()
}

func zstded(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	must(t, err)
	return w.EncodeAll(b, nil)
}

// testLayout is an image layout in the making.
type testLayout struct {
	t     testing.TB
	dir   string
	index v1.Index
}

func newLayout(t testing.TB) *testLayout {
	t.Helper()
	l := &testLayout{t: t, dir: t.TempDir(), index: v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex}}
	must(t, os.MkdirAll(filepath.Join(l.dir, "blobs", "sha256"), 0o755))
	must(t, os.WriteFile(filepath.Join(l.dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644))
	l.write()
	return l
}

func (l *testLayout) path(d digest.Digest) string {
	return filepath.Join(l.dir, "blobs", "sha256", d.Encoded())
}

func (l *testLayout) blob(mediaType string, b []byte) v1.Descriptor {
	l.t.Helper()
	d := v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(b), Size: int64(len(b))}
	must(l.t, os.WriteFile(l.path(d.Digest), b, 0o644))
	return d
}

func (l *testLayout) document(mediaType string, v any) v1.Descriptor {
	l.t.Helper()
	b, err := json.Marshal(v)
	must(l.t, err)
	return l.blob(mediaType, b)
}

func (l *testLayout) write() {
	l.t.Helper()
	b, err := json.Marshal(l.index)
	must(l.t, err)
	must(l.t, os.WriteFile(filepath.Join(l.dir, "index.json"), b, 0o644))
}

// layer is one of an image: an archive, compressed as its media type says.
type layer struct {
	mediaType string
	tar       []byte
}

func gz(b []byte) layer { return layer{v1.MediaTypeImageLayerGzip, b} }

// image puts an image into the layout, with a change of its parts before they are written.
func (l *testLayout) image(change func(*v1.Manifest, *v1.Image), layers ...layer) v1.Descriptor {
	l.t.Helper()
	config := v1.Image{Platform: v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}, RootFS: v1.RootFS{Type: "layers"}}
	manifest := v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest}
	for _, one := range layers {
		b := one.tar
		switch one.mediaType {
		case v1.MediaTypeImageLayerGzip:
			b = gzipped(l.t, b)
		case v1.MediaTypeImageLayerZstd:
			b = zstded(l.t, b)
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.FromBytes(one.tar))
		manifest.Layers = append(manifest.Layers, l.blob(one.mediaType, b))
	}
	if change != nil {
		change(&manifest, &config)
	}
	manifest.Config = l.document(v1.MediaTypeImageConfig, config)
	return l.document(v1.MediaTypeImageManifest, manifest)
}

// add lists what has been put into the layout in its index.
func (l *testLayout) add(d v1.Descriptor, ref string) {
	l.t.Helper()
	if ref != "" {
		d.Annotations = map[string]string{v1.AnnotationRefName: ref}
	}
	l.index.Manifests = append(l.index.Manifests, d)
	l.write()
}

// simple is a layout with one image.
func simple(t testing.TB, layers ...layer) *testLayout {
	t.Helper()
	l := newLayout(t)
	l.add(l.image(nil, layers...), "")
	return l
}

// store opens a store of the driver in a directory, of the driver copy in one of its own without one.
func store(t testing.TB, root string, d snapshot.Driver) *snapshot.Namespace {
	t.Helper()
	if d == nil {
		d, root = copydriver.New(), t.TempDir()
	}
	t.Cleanup(func() { writable(root) })
	s, err := snapshot.Open(root, snapshot.Options{Driver: d})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	namespace, err := s.Namespace("local")
	must(t, err)
	return namespace
}

// writable lets an unprivileged user delete what is in a directory.
func writable(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
}

// clean fails if there is a snapshot, a lease on one, or a directory.
func clean(t testing.TB, namespace *snapshot.Namespace) {
	t.Helper()
	s := namespace.Store()
	must(t, namespace.Walk(ctx, func(i snapshot.Info) error {
		t.Errorf("there is the snapshot %q", i.Name)
		return nil
	}))
	must(t, s.Cleanup(ctx))
	for _, name := range []string{"snapshots", "new", "trash"} {
		entries, err := os.ReadDir(filepath.Join(s.Root(), name))
		must(t, err)
		for _, e := range entries {
			t.Errorf("there is %s/%s", name, e.Name())
		}
	}
	problems, err := s.Check(ctx)
	must(t, err)
	for _, p := range problems {
		t.Error(p)
	}
}

// unlinked leaves out which names are one file: what is in two layers of an overlay is not.
func unlinked(list map[string]string) map[string]string {
	for name, line := range list {
		list[name], _, _ = strings.Cut(line, " same as ")
	}
	return list
}
