package command

import (
	"context"
	"fmt"

	"holdfast"
)

// elementBytes is what an element of a leaf takes beside its key and its value.
const elementBytes = 16

// walk goes through buckets in the order of their keys. It ends on any file: where damage
// has buckets share pages, it has more to go through than the file can hold.
type walk struct {
	ctx  context.Context
	tx   *holdfast.Tx
	left int64 // bytes of elements that may still come
	n    int
}

func newWalk(ctx context.Context, tx *holdfast.Tx) *walk {
	return &walk{ctx: ctx, tx: tx, left: tx.Size()}
}

// ctxEvery is how many elements are walked before the context is looked at.
const ctxEvery = 1024

// met is called with each element. At the end of a bucket k is nil, and the error is
// damage that has ended it early.
func (w *walk) met(k, v []byte) error {
	if k == nil {
		return w.tx.Err()
	}
	w.left -= elementBytes + int64(len(k)) + int64(len(v))
	if w.left < 0 {
		return fmt.Errorf("%w: there is more in its buckets than in the whole file: some of them share pages", errDamage)
	}
	if w.n++; w.n%ctxEvery == 0 {
		return w.ctx.Err()
	}
	return nil
}

// child opens the bucket name, which in has.
func (w *walk) child(in container, name []byte) (container, error) {
	b := in.child(name)
	if b == nil {
		if err := w.tx.Err(); err != nil {
			return container{}, err
		}
		return container{}, fmt.Errorf("%w: bucket %s is not found by its name", errDamage, show(name))
	}
	return container{tx: in.tx, Bucket: b}, nil
}

// each calls fn with each key in the container and its value, or nil for a bucket.
func (w *walk) each(in container, fn func(k, v []byte) error) error {
	c := in.cursor()
	for k, v := c.First(); ; k, v = c.Next() {
		if err := w.met(k, v); err != nil || k == nil {
			return err
		}
		if in.Bucket == nil && v != nil {
			return topLevelKey(k)
		}
		if err := fn(k, v); err != nil {
			return err
		}
	}
}

// topLevelKey is the error of a key where only buckets can be.
func topLevelKey(name []byte) error {
	return fmt.Errorf("%w: %s stands where only buckets can be", errDamage, show(name))
}

// count counts what is in the container, at any depth.
func (w *walk) count(in container) (c contents, err error) {
	err = w.each(in, func(k, v []byte) error {
		if v != nil {
			c.Keys++
			return nil
		}
		c.Buckets++
		child, err := w.child(in, k)
		if err != nil {
			return err
		}
		inside, err := w.count(child)
		c.add(inside)
		return err
	})
	return c, err
}

// contents are numbers of buckets and of keys.
type contents struct {
	Buckets uint64 `json:"buckets"`
	Keys    uint64 `json:"keys"`
}

func (c *contents) add(more contents) {
	c.Buckets += more.Buckets
	c.Keys += more.Keys
}

// total writes all that there is, for people.
func (c contents) total() string {
	return fmt.Sprintf("%s in %s", plural(c.Keys, "key"), plural(c.Buckets, "bucket"))
}

// text writes a part of what there is, for people.
func (c contents) text() string {
	if c.Buckets == 0 {
		return plural(c.Keys, "key")
	}
	return fmt.Sprintf("%s and %s", plural(c.Keys, "key"), plural(c.Buckets, "bucket"))
}
