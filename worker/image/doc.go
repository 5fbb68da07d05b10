// Package image imports images as snapshots for build steps: from an OCI image layout, and from tar
// archives. Each layer becomes one committed snapshot named by the layer's chain ID, so images share
// layers, and what is there is not made again.
//
// # An import
//
// Import reads a layout, or an archive, from a path; ImportArchive reads an archive from a reader:
//
//	result, err := image.Import(ctx, names, "debian-layout", image.Options{Name: "debian"})
//
// The name is a view on the topmost layer. It keeps the layers, and has labels with what the image
// runs. Resolve returns the snapshot to build on, ConfigOf the configuration:
//
//	info, err := names.Stat(ctx, "debian")
//	config, err := image.ConfigOf(info)
//	top, err := image.Resolve(ctx, names, "debian")
//
// # Untrusted archives
//
// Archives are not trusted. An entry that would lead out of the tree, or through a symbolic link, is
// refused, and with it the whole import, which then leaves nothing. Limits bound what an import
// takes. docs/worker/images.md has the list of what is refused and what is left out,
// docs/worker/internals.md what always holds (L1 to L5).
package image

import "errors"

// Errors of this package. They come wrapped, with the entry or document that is meant: compare
// with errors.Is.
var (
	// ErrUnsafe: an entry of an archive that must not be extracted.
	ErrUnsafe = errors.New("refused")

	// ErrLimit: an archive has more of something than Limits allow.
	ErrLimit = errors.New("over the limit")

	// ErrDigest: content is not what its digest or size says.
	ErrDigest = errors.New("content is not what was promised")

	// ErrFormat: an archive or document is malformed, cut off, or of an unknown kind.
	ErrFormat = errors.New("malformed")

	// ErrChoice: no image, or more than one, is what was asked for.
	ErrChoice = errors.New("no such choice")

	// ErrNotBase: a snapshot is not a base.
	ErrNotBase = errors.New("not a base")
)

// Limits bound what an import takes. A field that is 0 has its default.
type Limits struct {
	// Entries is how many entries all layers of an import may have together. Directories that lead to
	// an entry and have none themselves count, too.
	Entries int64

	// Names is how many bytes the names of these may have together: they are kept in memory.
	Names int64

	// Bytes is how many bytes all files of an import may have together, holes included, and what is copied
	// from lower layers.
	Bytes int64

	// Path is how many bytes the name of an entry may have, and the target of a link. One
	// component of it can never have more than 255.
	Path int

	// Ratio is to how many times its size a compressed layer may expand, once it has expanded to
	// RatioFrom bytes.
	Ratio     int64
	RatioFrom int64
}

// Defaults of Limits.
const (
	DefaultEntries   = 2_000_000
	DefaultNames     = 256 << 20
	DefaultBytes     = 64 << 30
	DefaultPath      = 4095
	DefaultRatio     = 200
	DefaultRatioFrom = 256 << 20
)

func (l Limits) filled() Limits {
	fill := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	fill(&l.Entries, DefaultEntries)
	fill(&l.Names, DefaultNames)
	fill(&l.Bytes, DefaultBytes)
	fill(&l.Ratio, DefaultRatio)
	fill(&l.RatioFrom, DefaultRatioFrom)
	if l.Path == 0 {
		l.Path = DefaultPath
	}
	return l
}

// Devices says what becomes of device nodes.
type Devices int

const (
	DevicesRefuse Devices = iota // they are ErrUnsafe
	DevicesSkip                  // they are left out, and counted
	DevicesMake                  // they are made, which needs root
)

// LeftOut counts what of an archive could not, or should not, be made.
type LeftOut struct {
	Owners  int64 // of entries, without the privilege to give files away; and their setuid and setgid bits
	Xattrs  int64 // extended attributes other than security.capability and user.*, or those that the file system or a lack of privilege refuses
	Devices int64 // with DevicesSkip
	Modes   int64 // of entries that their owner may not read, or enter: an unprivileged owner is let in, since it copies and measures them
}

func (l *LeftOut) add(o LeftOut) {
	l.Owners += o.Owners
	l.Xattrs += o.Xattrs
	l.Devices += o.Devices
	l.Modes += o.Modes
}
