package snapshot

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// ID names the directory of a snapshot. A Store gives each number once. 0 is none.
type ID uint64

// maxID is the largest one. Numbers above it are not given.
const maxID = 1 << 62

// String is the ID in decimal, as the directory is called.
func (id ID) String() string { return strconv.FormatUint(uint64(id), 10) }

// parseID is the inverse of String.
func parseID(s string) (ID, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 || n > maxID || strconv.FormatUint(n, 10) != s {
		return 0, false
	}
	return ID(n), true
}

// Kind says what can be done with a snapshot.
type Kind uint8

// Kinds of snapshots.
const (
	View      Kind = 1 // can be read; it has what its parent has
	Active    Kind = 2 // can be written, and committed
	Committed Kind = 3 // does not change any more; can be a parent
)

// String is the name of the kind.
func (k Kind) String() string {
	switch k {
	case View:
		return "view"
	case Active:
		return "active"
	case Committed:
		return "committed"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Usage is what a snapshot takes on the disk, without its parents.
type Usage struct {
	Size   int64 // bytes, in whole blocks
	Inodes int64 // files and directories
}

// Info is what a Store knows of a snapshot.
type Info struct {
	Kind     Kind
	Name     string
	Parent   string // "": none
	ID       ID
	Labels   map[string]string // nil: none
	Created  time.Time         // UTC, as all times. A committed snapshot was created by Commit
	Updated  time.Time         // by Prepare, View, Commit or Update
	LastUsed time.Time         // when it last was committed, became a parent, or was touched
	Pinned   bool
	Usage    Usage // of a committed snapshot, as it was found by Commit, or after it (MeasureLater); otherwise zero

	// Distrusted says that the machine went down before the content of a committed snapshot was
	// on the disk, and Trust was not called: see ErrDistrusted.
	Distrusted bool

	Digest   Digest    // of the content; zero: none, or not computed yet
	Verified time.Time // when the content was last compared with it; zero without one
	Damaged  bool      // it was another one then: see ErrDamaged
}

// Unusable is ErrDamaged or ErrDistrusted if nothing can be made of the snapshot for that; nil if not.
// It does not tell of its parents.
func (i *Info) Unusable() error {
	switch {
	case i.Damaged:
		return ErrDamaged
	case i.Distrusted:
		return ErrDistrusted
	}
	return nil
}

// Option is a choice of Prepare, View and Commit.
type Option func(*choices)

type choices struct {
	labels map[string]string
	parent string
	digest bool
	lease  string
	ttl    time.Duration
	pass   bool
	old    ID

	measureLater bool
}

// WithLabels gives the snapshot labels. A label with an empty value is left out.
func WithLabels(labels map[string]string) Option {
	return func(c *choices) {
		if c.labels == nil {
			c.labels = make(map[string]string, len(labels))
		}
		maps.Copy(c.labels, labels)
	}
}

// WithParent has Commit put the snapshot, which was prepared without a parent, on top
// of one. Not every driver can (Rebaser). For one that was prepared with that parent it
// changes nothing; another one is ErrInvalid.
func WithParent(name string) Option {
	return func(c *choices) { c.parent = name }
}

// WithDigest has Commit see to it that a digest of the content is computed and kept, so that it can be
// verified: in the background, soon after Commit has returned. See Store.Digested.
func WithDigest() Option {
	return func(c *choices) { c.digest = true }
}

// MeasureLater has Commit not measure what the snapshot takes, which is done in the background, soon after Commit has
// returned; see Store.Measured. For a caller of Commit where it must not take long. Until then Info.Usage and the
// totals have nothing of it; Namespace.Usage measures it first.
func MeasureLater() Option {
	return func(c *choices) { c.measureLater = true }
}

// WithLease has Commit take a lease on the snapshot in the same transaction, as Namespace.Lease does.
func WithLease(lease string, ttl time.Duration) Option {
	return func(c *choices) { c.lease, c.ttl = lease, ttl }
}

// Replacing has Prepare and View take the name of the snapshot that has an ID away from it, and remove that, in the
// same transaction: at any time the name is one of both. ErrInUse, as of Remove, if that is in use; ErrExists
// if the name is another snapshot's; no error if there is no such snapshot.
func Replacing(id ID) Option {
	return func(c *choices) { c.old = id }
}

func choose(options []Option) choices {
	var c choices
	for _, o := range options {
		o(&c)
	}
	return c
}

// Limits in bytes.
const (
	MaxNameSize      = 4096    // of a snapshot's name
	MaxNamespaceSize = 255     // of a namespace's name, and of a lease's
	MaxLabelsSize    = 1 << 20 // of all labels of a snapshot, keys and values
)

// checkName verifies a name that is to be part of a key.
func checkName(what, name string, limit int) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the %s is empty", ErrInvalid, what)
	case len(name) > limit:
		return fmt.Errorf("%w: the %s has %d bytes, %d are possible", ErrInvalid, what, len(name), limit)
	case strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("%w: the %s %q has a zero byte", ErrInvalid, what, name)
	}
	return nil
}

// keepLabels copies labels without those that have no value; nil if none are left.
func keepLabels(labels map[string]string) (map[string]string, error) {
	var kept map[string]string
	size := 0
	for k, v := range labels {
		if v == "" {
			continue
		}
		if k == "" {
			return nil, fmt.Errorf("%w: a label without a key", ErrInvalid)
		}
		if kept == nil {
			kept = make(map[string]string, len(labels))
		}
		kept[k] = v
		size += len(k) + len(v)
	}
	if size > MaxLabelsSize {
		return nil, fmt.Errorf("%w: labels of %d bytes, %d are possible", ErrInvalid, size, MaxLabelsSize)
	}
	return kept, nil
}

// LabelContent is the label of a committed snapshot that says what it is with its parents by content, such as the
// digests of the layers that it was made from: two snapshots with the same value have the same content, also in
// different stores. It is given by a caller that makes a snapshot from something that it has verified.
const LabelContent = "holdfast.content"
