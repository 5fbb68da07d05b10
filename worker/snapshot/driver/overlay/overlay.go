// Package overlay is the driver that stacks snapshots with overlayfs: each keeps what it
// changes relative to its parent.
package overlay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"holdfast/worker/internal/fstree"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// MaxLayers is how many parents a snapshot can have: as many as the kernel stacks.
const MaxLayers = 500

// probePrefix begins the name of the directory in which Probe tries.
const probePrefix = "probe-"

// ErrTooDeep: a snapshot would have more than MaxLayers parents.
var ErrTooDeep = errors.New("too many layers for an overlay")

// Driver keeps what a snapshot changes in DIR/fs, with overlayfs's scratch space in DIR/work.
type Driver struct {
	options []string
}

// New gives the driver. Its mounts have the further options given.
func New(options ...string) *Driver { return &Driver{options: options} }

// Name is "overlay".
func (*Driver) Name() string { return "overlay" }

// Keeps tells of the directory in which a Probe that was killed has tried.
func (*Driver) Keeps(name string) bool { return strings.HasPrefix(name, probePrefix) }

// Rebase marks that a snapshot is changes only.
func (*Driver) Rebase() {}

func changes(dir string) string { return filepath.Join(dir, "fs") }
func scratch(dir string) string { return filepath.Join(dir, "work") }

// hidden are extended attributes with which overlayfs describes a layer.
var hidden = []string{"trusted.overlay.", "user.overlay."}

// Create makes the directories. The root of an overlay is that of its upper directory, so that
// gets the parent's attributes.
func (*Driver) Create(_ context.Context, t snapshot.Tree) error {
	if len(t.Parents) > MaxLayers {
		return fmt.Errorf("%w: %d parents, %d are possible", ErrTooDeep, len(t.Parents), MaxLayers)
	}
	if t.Kind == snapshot.View && len(t.Parents) > 0 {
		return nil
	}
	dir := changes(t.Dir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if t.Kind == snapshot.View {
		return os.Chmod(dir, 0o755)
	}
	if err := os.Mkdir(scratch(t.Dir), 0o711); err != nil {
		return err
	}
	if len(t.Parents) == 0 {
		return os.Chmod(dir, 0o755) // whatever the umask is
	}
	return fstree.CopyAttributes(changes(t.Parents[0].Dir), dir, hidden...)
}

// Commit has nothing to do.
func (*Driver) Commit(context.Context, snapshot.Tree) error { return nil }

// Mounts is an overlay, or a bind mount where there is only one layer.
func (d *Driver) Mounts(_ context.Context, t snapshot.Tree, readonly bool) ([]mount.Mount, error) {
	var lower []string
	for _, p := range t.Parents {
		lower = append(lower, changes(p.Dir))
	}
	if t.Kind != snapshot.View && len(lower) > 0 && !readonly {
		options := append([]string{"workdir=" + scratch(t.Dir), "upperdir=" + changes(t.Dir)}, d.options...)
		return stack(options, lower), nil
	}
	if t.Kind != snapshot.View || len(lower) == 0 {
		lower = append([]string{changes(t.Dir)}, lower...)
	}
	if len(lower) > 1 {
		return stack(d.options, lower), nil
	}
	mode := "rw"
	if readonly || t.Kind == snapshot.View {
		mode = "ro"
	}
	return []mount.Mount{{Type: "bind", Source: lower[0], Options: []string{"rbind", mode}}}, nil
}

func stack(options, lower []string) []mount.Mount {
	options = append(options[:len(options):len(options)], "lowerdir="+strings.Join(lower, ":"))
	return []mount.Mount{{Type: "overlay", Source: "overlay", Options: options}}
}

// Usage measures what the snapshot changes, with its own directories.
func (*Driver) Usage(ctx context.Context, t snapshot.Tree) (snapshot.Usage, error) {
	u, err := fstree.Measure(ctx, t.Dir)
	return snapshot.Usage(u), err
}

// Digest is that of the tree of what the snapshot changes.
func (*Driver) Digest(ctx context.Context, l snapshot.Layer, o snapshot.DigestOptions) (snapshot.Digest, error) {
	sum, err := fstree.Digest(ctx, changes(l.Dir), fstree.DigestOptions(o))
	return sum, err
}

// Exchangeable marks that the directory of a snapshot has all of it.
func (*Driver) Exchangeable() {}

// Remove has nothing to do: it is all in the directory.
func (*Driver) Remove(context.Context, snapshot.Layer) error { return nil }
