package holdfast

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"

	"holdfast/internal/bucket"
	"holdfast/internal/page"
)

// compactHeld is how many bytes of pages Compact gathers before it writes them: more in
// one call is not faster.
const compactHeld = 4 << 20

// Compact copies all of src into dst, an empty database, in the order of the
// keys, so that dst has no free pages in between. Each page of the copy is written
// once, one after the other, and they are flushed together, as dst.Durability says.
//
// It is one transaction on dst: on an error dst is as before. The transaction holds
// about txMaxSize bytes in memory at most, and no more than 4 MiB if that is 0 or less,
// or larger; what is complete goes to the file before the commit. (A value that is larger than
// that is held whole.)
//
// Compact waits for the writer lock of dst and keeps it; src is read in one
// transaction, during which it can be written. Errors are those of both, and a
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
	opts := dst.commitOptions()
	tx.beginStream(tx.w.w.Appender(held, opts), opts)
	return src.View(func(from *Tx) error {
		c := compaction{tx: tx, into: &tx.w.root.core, left: from.Size(), roots: make(map[Pgid]struct{})}
		if err := c.all(from); err != nil {
			return err
		}
		// Before the view ends: what was appended lies in src's mapping until it is
		// committed.
		return tx.Commit()
	})
}

type compaction struct {
	tx     *Tx             // on dst
	into   *bucket.Bucket  // the root bucket of dst
	idle   []*bucket.Draft // of which the memory is used again
	shared bool            // there are buckets in dst already

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
	c.shared = first != nil
	return from.ForEach(func(name []byte, b *Bucket) error {
		if b == nil {
			return cmp.Or(from.Err(), fmt.Errorf("compact %s: %q at the top level is not a bucket", from.db.path, name))
		}
		return c.bucket(c.into, root, name, b)
	})
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

// bucket copies from, which is called name in outer, into a bucket.
func (c *compaction) bucket(into *bucket.Bucket, outer *Bucket, name []byte, from *Bucket) error {
	if err := c.meet(from, len(name), true); err != nil {
		return err
	}
	d := c.draft()
	if err := d.Begin(into, name, from.Sequence()); err != nil {
		return err
	}
	d.SetWide(from.core.IsWide())
	err := from.ForEach(func(k, v []byte) error {
		if v == nil {
			child := from.Bucket(k)
			if child == nil {
				return from.tx.Err()
			}
			return c.bucket(&d.Bucket, from, k, child)
		}
		if err := c.meet(from, len(k)+len(v), false); err != nil {
			return err
		}
		return from.ordered(d.AppendStable(k, v))
	})
	if err != nil {
		return err
	}
	if into == c.into {
		err = c.putTop(name, d)
	} else {
		err = into.AppendDraft(name, d)
	}
	c.idle = append(c.idle, d)
	return outer.ordered(c.tx.keep(err))
}

func (c *compaction) draft() *bucket.Draft {
	last := len(c.idle) - 1
	if last < 0 {
		return new(bucket.Draft)
	}
	d := c.idle[last]
	c.idle = c.idle[:last]
	return d
}

// putTop puts d into the root bucket of dst, of which pages are read only here.
func (c *compaction) putTop(name []byte, d *bucket.Draft) (err error) {
	defer c.tx.caught(debug.SetPanicOnFault(true), &err)
	if c.shared {
		return c.into.PutDraft(name, d)
	}
	return c.into.AppendDraft(name, d)
}

// ordered makes the error of keys of b that do not ascend the damage that it is.
func (b *Bucket) ordered(err error) error {
	if errors.Is(err, bucket.ErrUnordered) {
		return b.tx.keep(page.Corruptf(b.Root(), "keys are not in ascending order below this page"))
	}
	return err
}
