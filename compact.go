package holdfast

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"

	"holdfast/internal/bucket"
	"holdfast/internal/page"
	"holdfast/internal/tree"
)

// compactFill lets the tree choose, which fills pages of keys that come in order but for
// a seal.
const compactFill = tree.DefaultFill

// compactHeld is how many bytes of pages Compact gathers before it writes them: more in
// one call is not faster.
const compactHeld = 4 << 20

// Compact copies all of src into dst, an empty database, in the order of the
// keys, so that dst has no free pages in between. Each page of the copy is written
// once, one behind the other, and they are flushed together, as dst.Durability says.
//
// It is one transaction on dst: on an error dst is as before. The transaction holds
// about txMaxSize bytes in memory at most, and no more than 4 MiB if that is 0 or less,
// or larger; what is complete goes to the file before the commit. (A value that is larger than
// that is held whole.)
//
// Compact waits for the writer's turn on dst and keeps it; src is read in one
// transaction, beside which it can be written. Errors are those of both, and a
// *CorruptError for a source that is damaged.
func Compact(dst, src *DB, txMaxSize int64) error {
	tx, err := dst.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _, _ = tx.rollback() }()
	held := int64(compactHeld)
	if txMaxSize > 0 {
		held = min(held, txMaxSize)
	}
	return src.View(func(from *Tx) error {
		c := compaction{tx: tx, left: from.Size(), roots: make(map[Pgid]struct{})}
		c.build = bucket.NewBuilder(&tx.buckets, tx.w.w.Stream(held, dst.commitOptions()), compactFill)
		if err := c.all(from); err != nil {
			return err
		}
		// Before the view ends: what was put lies in src's mapping until it is
		// committed.
		return tx.Commit()
	})
}

type compaction struct {
	tx    *Tx // on dst
	build *bucket.Builder

	// What the source cannot have more of, however damaged it is.
	left  int64             // bytes
	roots map[Pgid]struct{} // buckets met
}

// all copies the buckets of from.
func (c *compaction) all(from *Tx) error {
	root, err := from.root()
	if err != nil {
		return err
	}
	first, _ := c.tx.Cursor().First()
	if err := c.tx.Err(); err != nil {
		return err
	}
	n := 0
	err = from.ForEach(func(name []byte, b *Bucket) error {
		if n++; b == nil {
			return cmp.Or(from.Err(), fmt.Errorf("compact %s: %q at the top level is no bucket", from.db.path, name))
		}
		if err := c.bucket(name, b); err != nil {
			return err
		}
		if first != nil { // beside what is in dst already
			return c.ended(root, c.build.CloseInto)
		}
		return root.ordered(c.build.Close())
	})
	if err != nil || n == 0 || first != nil {
		return err
	}
	return c.ended(root, c.build.Finish)
}

// meet counts n bytes of from, and from itself if it is met for the first time.
func (c *compaction) meet(from *Bucket, n int, first bool) error {
	if c.left -= int64(n); c.left < 0 {
		return from.circular()
	}
	if root := from.Root(); first && root != 0 {
		if _, again := c.roots[root]; again {
			return from.circular()
		}
		c.roots[root] = struct{}{}
	}
	return nil
}

// bucket copies from, which is called name, and leaves the copy open.
func (c *compaction) bucket(name []byte, from *Bucket) error {
	if err := c.meet(from, len(name), true); err != nil {
		return err
	}
	if err := c.build.Open(name, from.Sequence()); err != nil {
		return err
	}
	return from.ForEach(func(k, v []byte) error {
		if v == nil {
			child := from.Bucket(k)
			if child == nil {
				return from.tx.Err()
			}
			if err := c.bucket(k, child); err != nil {
				return err
			}
			return from.ordered(c.build.Close())
		}
		if err := c.meet(from, len(k)+len(v), false); err != nil {
			return err
		}
		return from.ordered(c.build.Put(k, v))
	})
}

// ended ends what was built of from with fn, which puts it into the root bucket of dst.
// Pages of that are read only here.
func (c *compaction) ended(from *Bucket, fn func(*bucket.Bucket) error) (err error) {
	defer c.tx.caught(debug.SetPanicOnFault(true), &err)
	return from.ordered(c.tx.keep(fn(&c.tx.w.root.core)))
}

// ordered makes the error of keys of b that do not ascend the damage that it is.
func (b *Bucket) ordered(err error) error {
	if errors.Is(err, tree.ErrUnordered) {
		return b.tx.keep(page.Corruptf(b.Root(), "%v below this page", err))
	}
	return err
}
