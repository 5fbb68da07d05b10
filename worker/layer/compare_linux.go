package layer

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Compare compares two directory trees, which must not change meanwhile, and calls fn for each name at
// which they differ: a directory before what is in it, and names of one directory in the order of their
// bytes. With lower "" everything is Added. The error of fn ends it and is returned.
//
// Content is read where size and times do not tell: of files that are the same inode, changed at the same time, it is
// not. Symbolic links are not followed. Memory is taken in proportion to the number of names in the directories of one
// path, and of files with several names.
func Compare(ctx context.Context, lower, upper string, fn func(Change) error) error {
	c := comparison{ctx: ctx, change: fn, same: func(string, *File) {}}
	return c.run(lower, upper)
}

// comparison is one run of Compare or Write.
type comparison struct {
	ctx          context.Context
	change       func(Change) error
	same         func(path string, upper *File) // files with several names that do not differ
	left         func(*File) bool               // files that count as not there; nil: none
	lower, upper *tree
	first        [2]map[inode]string // of files with several names the first that is in both trees
	buffers      [2][]byte
}

func (c *comparison) run(lower, upper string) (err error) {
	c.first = [2]map[inode]string{{}, {}}
	if c.lower, err = openTree(lower); err != nil {
		return err
	}
	defer c.lower.close()
	if c.upper, err = openTree(upper); err != nil {
		return err
	}
	defer c.upper.close()
	return c.name(".", c.lower.dir != nil, true)
}

// look is the file in a tree, nil if there is none that counts.
func (c *comparison) look(t *tree, path string, there bool) (*File, error) {
	if !there {
		return nil, nil
	}
	f, err := t.file(path)
	if err == nil && c.left != nil && c.left(f) {
		return nil, nil
	}
	return f, err
}

// name compares what has a path, in the trees in which there is something.
func (c *comparison) name(path string, inLower, inUpper bool) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	below, err := c.look(c.lower, path, inLower)
	if err != nil {
		return err
	}
	above, err := c.look(c.upper, path, inUpper)
	if err != nil {
		return err
	}
	change := Change{Path: path, Lower: below, Upper: above}
	switch {
	case below == nil && above == nil:
		return nil
	case above == nil:
		change.Kind = Removed
		return c.change(change)
	case below == nil:
		change.Kind = Added
	default:
		if change.Differs, err = c.differs(path, below, above); err != nil {
			return err
		}
		change.Kind = Modified
	}
	if change.Kind == Added || change.Differs != 0 {
		err = c.change(change)
	} else if above.linked {
		c.same(path, above)
	}
	if err != nil || !above.is(unix.S_IFDIR) {
		return err
	}
	return c.directory(path, below != nil && below.is(unix.S_IFDIR))
}

// directory compares what is in a directory of the upper tree, and in that of the lower if it is one there, too.
func (c *comparison) directory(path string, both bool) error {
	above, err := c.upper.names(path)
	if err != nil {
		return err
	}
	var below []string
	if both {
		if below, err = c.lower.names(path); err != nil {
			return err
		}
	}
	for len(above) > 0 || len(below) > 0 {
		name, inLower, inUpper := next(&below, &above)
		if path != "." {
			name = path + "/" + name
		}
		if err := c.name(name, inLower, inUpper); err != nil {
			return err
		}
	}
	return nil
}

// next takes the first name out of two ordered lists.
func next(lower, upper *[]string) (name string, inLower, inUpper bool) {
	inLower, inUpper = len(*lower) > 0, len(*upper) > 0
	if inLower && inUpper {
		a, b := (*lower)[0], (*upper)[0]
		inLower, inUpper = a <= b, b <= a
	}
	if inLower {
		name, *lower = (*lower)[0], (*lower)[1:]
	}
	if inUpper {
		name, *upper = (*upper)[0], (*upper)[1:]
	}
	return name, inLower, inUpper
}

// differs says in what two files differ that have the same path.
func (c *comparison) differs(path string, a, b *File) (d Difference, err error) {
	if a.Mode&unix.S_IFMT != b.Mode&unix.S_IFMT {
		d |= DiffersType
	}
	if a.Mode&^unix.S_IFMT != b.Mode&^unix.S_IFMT {
		d |= DiffersMode
	}
	if a.UID != b.UID || a.GID != b.GID {
		d |= DiffersOwner
	}
	if !a.MTime.Equal(b.MTime) {
		d |= DiffersTime
	}
	if !maps.Equal(a.Xattrs, b.Xattrs) {
		d |= DiffersXattrs
	}
	if d&DiffersType != 0 {
		return d, nil
	}
	if c.firstName(0, path, a) != c.firstName(1, path, b) {
		d |= DiffersLinks
	}
	if a.Size != b.Size || a.Target != b.Target || a.Major != b.Major || a.Minor != b.Minor {
		return d | DiffersContent, nil
	}
	if !b.is(unix.S_IFREG) || unchanged(a, b) {
		return d, nil
	}
	same, err := c.sameContent(path)
	if err == nil && !same {
		d |= DiffersContent
	}
	return d, err
}

// unchanged tells of two regular files that they are one inode of which nothing has changed, as in overlays and in
// snapshots of btrfs. Images of erofs have no time of the change: there it is that of the modification, and files of
// two images can have the same number.
func unchanged(a, b *File) bool {
	return a.inode.number == b.inode.number && a.ctime.Equal(b.ctime) && a.MTime.Equal(b.MTime) && !a.ctime.Equal(a.MTime)
}

// firstName is the first name of a file that is in both trees.
func (c *comparison) firstName(of int, path string, f *File) string {
	if !f.linked {
		return path
	}
	first, ok := c.first[of][f.inode]
	if !ok {
		first = path
		c.first[of][f.inode] = path
	}
	return first
}

const chunk = 256 << 10

// sameContent compares the bytes of two regular files.
func (c *comparison) sameContent(path string) (bool, error) {
	a, err := c.lower.open(path)
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := c.upper.open(path)
	if err != nil {
		return false, err
	}
	defer b.Close()
	for i := range c.buffers {
		c.buffers[i] = slices.Grow(c.buffers[i][:0], chunk)[:chunk]
	}
	for {
		n, err := full(a, c.buffers[0])
		if err != nil {
			return false, fmt.Errorf("read %s: %w", a.Name(), err)
		}
		m, err := full(b, c.buffers[1])
		if err != nil {
			return false, fmt.Errorf("read %s: %w", b.Name(), err)
		}
		if !bytes.Equal(c.buffers[0][:n], c.buffers[1][:m]) {
			return false, nil
		}
		if n < chunk {
			return true, nil
		}
		if err := c.ctx.Err(); err != nil {
			return false, err
		}
	}
}
