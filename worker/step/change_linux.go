package step

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/worker/layer"
)

// changeKinds are the names of the kinds of a Change.
var changeKinds = map[layer.Kind]string{layer.Added: "added", layer.Modified: "changed", layer.Removed: "deleted"}

// changes calls each for what the directory tree after has changed of the tree before.
func changes(ctx context.Context, before, after string, each func(Change) error) error {
	var said []string // the directories above the last path, the topmost first, of which each was told
	return layer.Compare(ctx, before, after, func(c layer.Change) error {
		if c.Path == "." || c.Kind == layer.Modified && !matters(&c) {
			return nil
		}
		names := strings.Split(c.Path, "/")
		same := 0
		for same < len(said) && same < len(names)-1 && said[same] == names[same] {
			same++
		}
		for i := same + 1; i < len(names); i++ {
			if err := each(Change{Path: "/" + strings.Join(names[:i], "/"), Kind: changeKinds[layer.Modified]}); err != nil {
				return err
			}
		}
		said = names
		return each(Change{Path: "/" + c.Path, Kind: changeKinds[c.Kind]})
	})
}

// matters tells whether a difference is one of what a file is: not which other names it has, nor when a directory was changed, which is
// told by what was changed in it.
func matters(c *layer.Change) bool {
	nothing := layer.DiffersLinks
	if c.Upper.Mode&unix.S_IFMT == unix.S_IFDIR {
		nothing |= layer.DiffersTime
	}
	return c.Differs&^nothing != 0
}
