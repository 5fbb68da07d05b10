package image

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Media types that Docker has for the same documents.
const (
	dockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerConfig   = "application/vnd.docker.container.image.v1+json"
)

// layerTypes says how layers are compressed, by their media types.
var layerTypes = map[string]compression{
	v1.MediaTypeImageLayer:                                         compressNone,
	v1.MediaTypeImageLayerGzip:                                     compressGzip,
	v1.MediaTypeImageLayerZstd:                                     compressZstd,
	"application/vnd.oci.image.layer.nondistributable.v1.tar":      compressNone,
	"application/vnd.oci.image.layer.nondistributable.v1.tar+gzip": compressGzip,
	"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd": compressZstd,
	"application/vnd.docker.image.rootfs.diff.tar":                 compressNone,
	"application/vnd.docker.image.rootfs.diff.tar.gzip":            compressGzip,
	"application/vnd.docker.image.rootfs.diff.tar.zstd":            compressZstd,
}

// Bounds on what an index leads to.
const (
	maxIndexDepth = 8
	maxManifests  = 1000
	maxLayers     = 500 // as many as an overlay can have
)

// Platform is what an image is for.
type Platform struct {
	OS, Architecture string
	Variant          string // "": any
}

// ParsePlatform reads OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, as linux/arm64. The empty string
// is the platform of this machine.
func ParsePlatform(s string) (Platform, error) {
	if s == "" {
		return Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}, nil
	}
	parts := strings.Split(s, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return Platform{}, fmt.Errorf("%w: the platform %q; a platform is OS/ARCHITECTURE, such as linux/amd64, or with a variant linux/arm/v7", ErrChoice, s)
	}
	p := Platform{OS: parts[0], Architecture: parts[1]}
	if len(parts) == 3 {
		p.Variant = parts[2]
	}
	return p, nil
}

// String is the platform as ParsePlatform reads it.
func (p Platform) String() string {
	s := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return s
}

func (p Platform) matches(q Platform) bool {
	return p.OS == q.OS && p.Architecture == q.Architecture && (p.Variant == "" || p.Variant == q.Variant)
}

// image is one that was chosen in a layout.
type image struct {
	descriptor v1.Descriptor
	ref        string
	platform   Platform
	manifest   v1.Manifest
	config     v1.Image
	chain      []digest.Digest // the chain ids of its layers
}

// chooser looks for the images in an index that are asked for.
type chooser struct {
	l        *layout
	ref      string
	platform Platform
	seen     int
	found    *image   // the first one; the others are not kept
	several  bool     // another one has another name
	refs     []string // all that have the platform
	others   []string // platforms that are there
}

// choose finds the one image that is asked for: by name, if ref is not empty, and by platform.
func (l *layout) choose(ref string, p Platform) (*image, error) {
	index, err := l.index()
	if err != nil {
		return nil, err
	}
	c := &chooser{l: l, ref: ref, platform: p}
	if err := c.index(index, "", 0); err != nil {
		return nil, err
	}
	return c.result()
}

func (c *chooser) result() (*image, error) {
	slices.Sort(c.refs)
	refs := slices.Compact(c.refs)
	switch {
	case c.several:
		return nil, fmt.Errorf("%w: there are several images; say which one by its name: %s", ErrChoice, list(refs))
	case c.found != nil:
		return c.found, c.l.complete(c.found)
	case c.ref != "" && len(refs) > 0:
		return nil, fmt.Errorf("%w: no image is called %q; there are %s", ErrChoice, c.ref, list(refs))
	case len(c.others) > 0:
		slices.Sort(c.others)
		return nil, fmt.Errorf("%w: no image for %s; there are some for %s", ErrChoice, c.platform, list(slices.Compact(c.others)))
	}
	return nil, fmt.Errorf("%w: no image for %s", ErrChoice, c.platform)
}

// list names some of many.
func list(names []string) string {
	const most = 10
	short := make([]string, 0, most+1)
	for i, name := range names {
		if i == most {
			short = append(short, fmt.Sprintf("%d more", len(names)-most))
			break
		}
		if name == "" {
			name = "one without a name"
		}
		short = append(short, shorten(name))
	}
	return strings.Join(short, ", ")
}

func (c *chooser) index(index v1.Index, ref string, depth int) error {
	if depth > maxIndexDepth {
		return fmt.Errorf("%w: indices are nested more than %d deep", ErrLimit, maxIndexDepth)
	}
	if index.SchemaVersion != 2 {
		return fmt.Errorf("%w: an index of schema version %d; 2 is read", ErrFormat, index.SchemaVersion)
	}
	for _, d := range index.Manifests {
		if c.seen++; c.seen > maxManifests {
			return fmt.Errorf("%w: more than %d manifests", ErrLimit, maxManifests)
		}
		name := ref
		if name == "" {
			name = d.Annotations[v1.AnnotationRefName]
		}
		if err := c.descriptor(d, name, depth); err != nil {
			return err
		}
	}
	return nil
}

func (c *chooser) descriptor(d v1.Descriptor, ref string, depth int) error {
	switch d.MediaType {
	case v1.MediaTypeImageIndex, dockerList:
		if c.ref != "" && ref != "" && ref != c.ref {
			c.refs = append(c.refs, ref)
			return nil
		}
		var index v1.Index
		if err := c.l.document(d, &index); err != nil {
			return err
		}
		if index.MediaType != "" && index.MediaType != d.MediaType {
			return fmt.Errorf("%s: %w: it says that it is %q, and its descriptor %q", d.Digest, ErrFormat, shorten(index.MediaType), d.MediaType)
		}
		return c.index(index, ref, depth+1)
	case v1.MediaTypeImageManifest, dockerManifest:
		return c.manifest(d, ref)
	}
	return nil // of a kind that is not an image
}

func (c *chooser) manifest(d v1.Descriptor, ref string) error {
	m := image{descriptor: d, ref: ref}
	if p := d.Platform; p != nil {
		m.platform = Platform{p.OS, p.Architecture, p.Variant}
		if !c.platform.matches(m.platform) {
			c.others = append(c.others, m.platform.String())
			return nil
		}
	}
	if err := c.l.document(d, &m.manifest); err != nil {
		return err
	}
	if t := m.manifest.MediaType; t != "" && t != d.MediaType {
		return fmt.Errorf("%s: %w: it says that it is %q, and its descriptor %q", d.Digest, ErrFormat, shorten(t), d.MediaType)
	}
	if t := m.manifest.Config.MediaType; t != v1.MediaTypeImageConfig && t != dockerConfig {
		return nil // an artifact of another kind
	}
	if err := c.l.document(m.manifest.Config, &m.config); err != nil {
		return err
	}
	m.platform = Platform{m.config.OS, m.config.Architecture, m.config.Variant}
	if d.Platform == nil && !c.platform.matches(m.platform) {
		c.others = append(c.others, m.platform.String())
		return nil
	}
	c.refs = append(c.refs, ref)
	if c.ref != "" && c.ref != ref {
		return nil
	}
	if first := c.found; first == nil {
		c.found = &m
	} else if first.ref != m.ref && first.descriptor.Digest != m.descriptor.Digest {
		c.several = true // in an index the first that fits is meant; of several names none is
	}
	return nil
}

// complete checks that the layers of an image are what can be read.
func (l *layout) complete(m *image) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("image %s: %w: %s", m.descriptor.Digest, ErrFormat, fmt.Sprintf(format, args...))
	}
	if m.manifest.SchemaVersion != 2 {
		return bad("a manifest of schema version %d; 2 is read", m.manifest.SchemaVersion)
	}
	if t := m.config.RootFS.Type; t != "layers" {
		return bad("a root file system of type %q; layers are read", shorten(t))
	}
	layers, ids := m.manifest.Layers, m.config.RootFS.DiffIDs
	switch {
	case len(layers) != len(ids):
		return bad("%d layers in the manifest, and %d in the config", len(layers), len(ids))
	case len(layers) == 0:
		return bad("it has no layers")
	case len(layers) > maxLayers:
		return fmt.Errorf("image %s: %w: %d layers, %d are possible", m.descriptor.Digest, ErrLimit, len(layers), maxLayers)
	}
	for i, d := range layers {
		if _, ok := layerTypes[d.MediaType]; !ok {
			return bad("layer %d has the media type %q, which is not read", i+1, shorten(d.MediaType))
		}
		for _, one := range []digest.Digest{d.Digest, ids[i]} {
			if err := one.Validate(); err != nil {
				return bad("layer %d: digest %q: %s", i+1, shorten(string(one)), err)
			}
		}
		if d.Size < 0 {
			return bad("layer %d: a size of %d bytes", i+1, d.Size)
		}
	}
	m.chain = identity.ChainIDs(slices.Clone(ids))
	return nil
}
