// Package copy is the driver that works everywhere: each snapshot is a whole copy of its
// parent. Where the file system can (XFS, btrfs), a copy shares blocks with what it was made
// from, and takes time in proportion to the number of files; elsewhere in proportion to their
// bytes.
package copy

import (
	"context"
	"os"
	"path/filepath"

	"holdfast/worker/internal/fstree"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// Driver keeps each snapshot as a whole tree in DIR/fs.
type Driver struct{}

// New gives the driver.
func New() *Driver { return &Driver{} }

func tree(dir string) string { return filepath.Join(dir, "fs") }

// Name is "copy".
func (*Driver) Name() string { return "copy" }

// Create copies the nearest parent. A view with a parent has nothing of its own.
func (*Driver) Create(ctx context.Context, t snapshot.Tree) error {
	if t.Kind == snapshot.View && len(t.Parents) > 0 {
		_, err := os.Stat(tree(t.Parents[0].Dir))
		return err
	}
	dir := tree(t.Dir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if len(t.Parents) == 0 {
		return os.Chmod(dir, 0o755) // whatever the umask is
	}
	return fstree.Copy(ctx, tree(t.Parents[0].Dir), dir)
}

// Commit has nothing to do.
func (*Driver) Commit(context.Context, snapshot.Tree) error { return nil }

// Mounts is a bind mount.
func (*Driver) Mounts(_ context.Context, t snapshot.Tree, readonly bool) ([]mount.Mount, error) {
	dir, options := tree(t.Dir), []string{"rbind", "rw"}
	if t.Kind == snapshot.View && len(t.Parents) > 0 {
		dir, readonly = tree(t.Parents[0].Dir), true
	}
	if readonly {
		options[1] = "ro"
	}
	return []mount.Mount{{Type: "bind", Source: dir, Options: options}}, nil
}

// Usage measures the whole copy: blocks that it shares with others are counted for each.
func (*Driver) Usage(ctx context.Context, t snapshot.Tree) (snapshot.Usage, error) {
	u, err := fstree.Measure(ctx, t.Dir)
	return snapshot.Usage(u), err
}

// Digest is that of the whole tree.
func (*Driver) Digest(ctx context.Context, l snapshot.Layer, o snapshot.DigestOptions) (snapshot.Digest, error) {
	sum, err := fstree.Digest(ctx, tree(l.Dir), fstree.DigestOptions(o))
	return sum, err
}

// Exchangeable marks that the directory of a snapshot has all of it.
func (*Driver) Exchangeable() {}

// Remove has nothing to do.
func (*Driver) Remove(context.Context, snapshot.Layer) error { return nil }
