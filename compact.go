package holdfast

import (
	"cmp"
	"fmt"
)

// compactFill is the share to which Compact fills pages: keys come in order,
// and the copy is written to rarely.
const compactFill = 1.0

// Compact copies all of src into dst, an empty database, in the order of the
// keys, so that dst has no free pages in between. A transaction on dst holds
// about txMaxSize bytes at most; 0 or less: everything is one transaction. On
// an error dst may hold part of src.
func Compact(dst, src *DB, txMaxSize int64) error {
	tx, err := dst.Begin(true)
	if err != nil {
		return err
	}
	c := compaction{dst: dst, tx: tx, max: txMaxSize, roots: make(map[Pgid]struct{})}
	defer func() { c.tx.rollback() }()
	return src.View(func(from *Tx) error {
		c.left = from.Size()
		err := from.ForEach(func(name []byte, b *Bucket) error {
			if b == nil {
				return cmp.Or(from.Err(), fmt.Errorf("compact %s: %q at the top level is no bucket", src.path, name))
			}
			return c.bucket(nil, name, b)
		})
		if err != nil {
			return err
		}
		// Before the view ends: what was put lies in src's mapping until it is
		// committed.
		return c.tx.Commit()
	})
}

type compaction struct {
	dst  *DB
	tx   *Tx
	max  int64
	size int64 // bytes put in this transaction

	// What the source cannot have more of, however damaged it is.
	left  int64             // bytes
	roots map[Pgid]struct{} // buckets met
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

// reserve begins a new transaction if n more bytes are too many for this one.
func (c *compaction) reserve(n int) error {
	if c.max > 0 && c.size > 0 && c.size+int64(n) > c.max {
		if err := c.tx.Commit(); err != nil {
			return err
		}
		tx, err := c.dst.Begin(true)
		if err != nil {
			return err
		}
		c.tx, c.size = tx, 0
	}
	c.size += int64(n)
	return nil
}

// at opens the bucket at path in the transaction of the moment.
func (c *compaction) at(path [][]byte) (*Bucket, error) {
	b := c.tx.Bucket(path[0])
	for _, name := range path[1:] {
		if b != nil {
			b = b.Bucket(name)
		}
	}
	if b == nil { // which was created by the transaction before
		return nil, cmp.Or(c.tx.Err(), ErrBucketNotFound)
	}
	b.FillPercent = compactFill
	return b, nil
}

// create makes the bucket called name below path.
func (c *compaction) create(path [][]byte, name []byte) (*Bucket, error) {
	if len(path) == 0 {
		return c.tx.CreateBucket(name)
	}
	in, err := c.at(path)
	if err != nil {
		return nil, err
	}
	return in.CreateBucket(name)
}

// bucket copies from, which is called name and lies below path.
func (c *compaction) bucket(path [][]byte, name []byte, from *Bucket) error {
	if err := c.meet(from, len(name), true); err != nil {
		return err
	}
	if err := c.reserve(len(name)); err != nil {
		return err
	}
	to, err := c.create(path, name)
	if err != nil {
		return err
	}
	if err := to.SetSequence(from.Sequence()); err != nil {
		return err
	}
	to.FillPercent = compactFill
	path = append(path, name) // shares memory with siblings, which come one after the other
	in := c.tx
	return from.ForEach(func(k, v []byte) error {
		if v == nil {
			child := from.Bucket(k)
			if child == nil {
				return from.tx.Err()
			}
			return c.bucket(path, k, child)
		}
		if err := c.meet(from, len(k)+len(v), false); err != nil {
			return err
		}
		if err := c.reserve(len(k) + len(v)); err != nil {
			return err
		}
		if in != c.tx { // to belongs to a transaction that has ended
			in = c.tx
			if to, err = c.at(path); err != nil {
				return err
			}
		}
		return to.Put(k, v)
	})
}
