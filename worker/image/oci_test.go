package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/image"
)

// TestLies: layouts whose content is not what they say. The layer that lies is the second, so the first is
// there already.
func TestLies(t *testing.T) {
	replace := func(l *testLayout, d v1.Descriptor, b []byte) { must(t, os.WriteFile(l.path(d.Digest), b, 0o644)) }
	other := func(t *testing.T) []byte { return gzipped(t, archive(t, file("evil", "x"))) }
	cases := map[string]struct {
		want  error
		image func(t *testing.T, l *testLayout, m *v1.Manifest, c *v1.Image)
	}{
		"other layer": {image.ErrDigest, func(t *testing.T, l *testLayout, m *v1.Manifest, _ *v1.Image) { replace(l, m.Layers[1], other(t)) }},
		"no archive": {image.ErrDigest, func(_ *testing.T, l *testLayout, m *v1.Manifest, _ *v1.Image) {
			replace(l, m.Layers[1], bytes.Repeat([]byte("x"), int(m.Layers[1].Size)))
		}},
		"cut off": {image.ErrDigest, func(_ *testing.T, l *testLayout, m *v1.Manifest, _ *v1.Image) {
			must(t, os.Truncate(l.path(m.Layers[1].Digest), m.Layers[1].Size-20))
		}},
		"longer": {image.ErrDigest, func(t *testing.T, l *testLayout, m *v1.Manifest, _ *v1.Image) {
			b, err := os.ReadFile(l.path(m.Layers[1].Digest))
			must(t, err)
			replace(l, m.Layers[1], append(b, 0))
		}},
		"a size too small": {image.ErrDigest, func(_ *testing.T, _ *testLayout, m *v1.Manifest, _ *v1.Image) { m.Layers[1].Size -= 2 }},
		"a size too large": {image.ErrDigest, func(_ *testing.T, _ *testLayout, m *v1.Manifest, _ *v1.Image) { m.Layers[1].Size++ }},
		"a negative size":  {image.ErrFormat, func(_ *testing.T, _ *testLayout, m *v1.Manifest, _ *v1.Image) { m.Layers[1].Size = -1 }},
		"bytes behind the archive": {image.ErrDigest, func(t *testing.T, l *testLayout, m *v1.Manifest, c *v1.Image) {
			b := append(archive(t, file("f", "x")), "more"...) // whose digest is not of all
			m.Layers[1] = l.blob(v1.MediaTypeImageLayer, b)
			c.RootFS.DiffIDs[1] = digest.FromBytes(b[:len(b)-4])
		}},
		"other content": {image.ErrDigest, func(_ *testing.T, _ *testLayout, _ *v1.Manifest, c *v1.Image) {
			c.RootFS.DiffIDs[1] = digest.FromString("x")
		}},
		"no blob": {image.ErrFormat, func(_ *testing.T, l *testLayout, m *v1.Manifest, _ *v1.Image) {
			must(t, os.Remove(l.path(m.Layers[1].Digest)))
		}},
		"not compressed": {image.ErrFormat, func(_ *testing.T, l *testLayout, m *v1.Manifest, _ *v1.Image) {
			m.Layers[1].MediaType = v1.MediaTypeImageLayerZstd
		}},
		"unknown type": {image.ErrFormat, func(_ *testing.T, l *testLayout, m *v1.Manifest, _ *v1.Image) { m.Layers[1].MediaType += "+encrypted" }},
		"digest as a path": {image.ErrFormat, func(_ *testing.T, _ *testLayout, m *v1.Manifest, _ *v1.Image) {
			m.Layers[1].Digest = "sha256:../../../evil"
		}},
		"unknown digest": {image.ErrFormat, func(_ *testing.T, _ *testLayout, m *v1.Manifest, _ *v1.Image) {
			m.Layers[1].Digest = "md5:d41d8cd98f00b204e9800998ecf8427e"
		}},
		"bad diff id": {image.ErrFormat, func(_ *testing.T, _ *testLayout, _ *v1.Manifest, c *v1.Image) { c.RootFS.DiffIDs[1] = "sha256:x" }},
		"fewer diff ids": {image.ErrFormat, func(_ *testing.T, _ *testLayout, _ *v1.Manifest, c *v1.Image) {
			c.RootFS.DiffIDs = c.RootFS.DiffIDs[:1]
		}},
		"no layers":        {image.ErrFormat, func(_ *testing.T, _ *testLayout, m *v1.Manifest, c *v1.Image) { m.Layers, c.RootFS.DiffIDs = nil, nil }},
		"other root":       {image.ErrFormat, func(_ *testing.T, _ *testLayout, _ *v1.Manifest, c *v1.Image) { c.RootFS.Type = "blocks" }},
		"other schema":     {image.ErrFormat, func(_ *testing.T, _ *testLayout, m *v1.Manifest, _ *v1.Image) { m.SchemaVersion = 1 }},
		"other media type": {image.ErrFormat, func(_ *testing.T, _ *testLayout, m *v1.Manifest, _ *v1.Image) { m.MediaType = v1.MediaTypeImageIndex }},
		"other platform":   {image.ErrChoice, func(_ *testing.T, _ *testLayout, _ *v1.Manifest, c *v1.Image) { c.Architecture = "pdp11" }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			namespace := store(t, "", nil)
			l := newLayout(t)
			l.add(l.image(func(m *v1.Manifest, i *v1.Image) { c.image(t, l, m, i) }, onto(t), gz(archive(t, file("f", "new")))), "")
			if _, err := image.Import(ctx, namespace, l.dir, image.Options{Name: "x"}); !errors.Is(err, c.want) {
				t.Errorf("error %v, and not %v", err, c.want)
			}
			clean(t, namespace)
		})
	}
}

// TestBadDocuments: an index, manifest or config that is not what its digest says, or no JSON.
func TestBadDocuments(t *testing.T) {
	namespace := store(t, "", nil)
	try := func(name string, want error, break_ func(l *testLayout, manifest v1.Descriptor)) {
		l := newLayout(t)
		d := l.image(nil, onto(t))
		l.add(d, "")
		break_(l, d)
		if _, err := image.Import(ctx, namespace, l.dir, image.Options{}); !errors.Is(err, want) {
			t.Errorf("%s: %v, and not %v", name, err, want)
		}
	}
	write := func(path, s string) { must(t, os.WriteFile(path, []byte(s), 0o644)) }
	try("manifest", image.ErrDigest, func(l *testLayout, d v1.Descriptor) { write(l.path(d.Digest), strings.Repeat(" ", int(d.Size))) })
	try("longer manifest", image.ErrDigest, func(l *testLayout, d v1.Descriptor) { write(l.path(d.Digest), strings.Repeat(" ", int(d.Size+1))) })
	try("index", image.ErrFormat, func(l *testLayout, _ v1.Descriptor) { write(filepath.Join(l.dir, "index.json"), "{") })
	try("long index", image.ErrLimit, func(l *testLayout, _ v1.Descriptor) {
		write(filepath.Join(l.dir, "index.json"), strings.Repeat(" ", 9<<20))
	})
	try("version", image.ErrFormat, func(l *testLayout, _ v1.Descriptor) {
		write(filepath.Join(l.dir, "oci-layout"), `{"imageLayoutVersion":"9.0.0"}`)
	})
	try("long manifest", image.ErrLimit, func(l *testLayout, d v1.Descriptor) {
		d.Size = 1 << 40
		l.index.Manifests = nil
		l.add(d, "")
	})
	try("a pipe", image.ErrFormat, func(l *testLayout, d v1.Descriptor) {
		must(t, os.Remove(l.path(d.Digest)))
		must(t, os.Mkdir(l.path(d.Digest), 0o755))
	})
	try("depth", image.ErrLimit, func(l *testLayout, d v1.Descriptor) {
		for range 20 {
			d = l.document(v1.MediaTypeImageIndex, v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: []v1.Descriptor{d}})
		}
		l.index.Manifests = nil
		l.add(d, "")
	})
	try("breadth", image.ErrLimit, func(l *testLayout, d v1.Descriptor) {
		for range 5 { // four times as many with each
			d = l.document(v1.MediaTypeImageIndex, v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: []v1.Descriptor{d, d, d, d}})
		}
		l.index.Manifests = nil
		l.add(d, "")
	})
	clean(t, namespace)
}

// TestPlatforms: of an index with several, in an index, the one that is asked for.
func TestPlatforms(t *testing.T) {
	namespace := store(t, "", nil)
	l := newLayout(t)
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex}
	for _, s := range []string{"linux/riscv64", "linux/arm/v6", "linux/arm/v7", "plan9/amd64"} {
		p, err := image.ParsePlatform(s)
		must(t, err)
		d := l.image(func(_ *v1.Manifest, c *v1.Image) {
			c.OS, c.Architecture, c.Variant = p.OS, p.Architecture, p.Variant
		}, gz(archive(t, file("for", s))))
		if s != "plan9/amd64" { // that is only in its config
			d.Platform = &v1.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}
		}
		index.Manifests = append(index.Manifests, d)
	}
	attestation := l.image(nil, gz(archive(t, file("for", "nobody"))))
	attestation.Platform = &v1.Platform{OS: "unknown", Architecture: "unknown"}
	index.Manifests = append(index.Manifests, attestation, l.blob("application/x-other", []byte("other")))
	l.add(l.document(v1.MediaTypeImageIndex, index), "all")
	for s, want := range map[string]string{"linux/riscv64": "linux/riscv64", "linux/arm": "linux/arm/v6", "linux/arm/v7": "linux/arm/v7", "plan9/amd64": "plan9/amd64"} {
		p, err := image.ParsePlatform(s)
		must(t, err)
		r, err := image.Import(ctx, namespace, l.dir, image.Options{Platform: p, Ref: "all"})
		if err != nil || r.Platform != want || r.Layers[0].DiffID != digest.FromBytes(archive(t, file("for", want))) {
			t.Errorf("%s: %+v, %v", s, r, err)
		}
	}
	_, err := image.Import(ctx, namespace, l.dir, image.Options{Platform: image.Platform{OS: "linux", Architecture: "s390x"}})
	if !errors.Is(err, image.ErrChoice) || !strings.Contains(fmt.Sprint(err), "linux/arm/v7") {
		t.Errorf("a platform that is not there: %v", err)
	}
	for _, s := range []string{"linux", "linux/", "/amd64", "a/b/c/d"} {
		if p, err := image.ParsePlatform(s); !errors.Is(err, image.ErrChoice) {
			t.Errorf("%q: %v, %v", s, p, err)
		}
	}
}

// TestOrdinary: what an unprivileged user cannot do is left out and counted.
func TestOrdinary(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("needs an unprivileged user")
	}
	namespace := store(t, "", nil)
	foreign := func(h *tar.Header) { h.Uid, h.Mode = 12345, 0o4755 }
	r, err := image.ImportArchive(ctx, namespace, bytes.NewReader(archive(t, file("f", "x").with(foreign), dir("ro").with(func(h *tar.Header) { h.Mode = 0o500 }), file("ro/f", "x"))), image.Options{})
	must(t, err)
	info, err := namespace.Stat(ctx, r.Snapshot)
	must(t, err)
	st, err := os.Stat(filepath.Join(namespace.Store().Root(), "snapshots", info.ID.String(), "fs", "f"))
	if err != nil || r.LeftOut.Owners != 1 || st.Mode() != 0o755 {
		t.Errorf("%+v, %v, %v", r.LeftOut, st.Mode(), err)
	}
}
