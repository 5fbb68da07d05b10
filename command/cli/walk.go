package cli

import (
	"context"
	"fmt"

	"holdfast"
)

// elementBytes is what an element of a leaf takes besides its key and its value.
const elementBytes = 16

// Walk goes through buckets in the order of their keys. It ends on any file: where damage
// has buckets share pages, it has more to go through than the file can hold.
type Walk struct {
	ctx  context.Context
	Tx   *holdfast.Tx
	left int64 // bytes of elements that may still come
	n    int
}

// NewWalk begins to walk through tx, until ctx ends.
func NewWalk(ctx context.Context, tx *holdfast.Tx) *Walk {
	return &Walk{ctx: ctx, Tx: tx, left: tx.Size()}
}

// ctxEvery is how many elements are walked before the context is looked at.
const ctxEvery = 1024

// Met is called with each element. At the end of a bucket k is nil, and the error is
// damage that has ended it early.
func (w *Walk) Met(k, v []byte) error {
	if k == nil {
		return w.Tx.Err()
	}
	w.left -= elementBytes + int64(len(k)) + int64(len(v))
	if w.left < 0 {
		return fmt.Errorf("%w: there is more in its buckets than in the whole file: some of them share pages", ErrDamage)
	}
	if w.n++; w.n%ctxEvery == 0 {
		return w.ctx.Err()
	}
	return nil
}

// Child opens the bucket name, which in has.
func (w *Walk) Child(in Container, name []byte) (Container, error) {
	b := in.Child(name)
	if b == nil {
		if err := w.Tx.Err(); err != nil {
			return Container{}, err
		}
		return Container{}, fmt.Errorf("%w: bucket %s is not found by its name", ErrDamage, Show(name))
	}
	return Container{Tx: in.Tx, Bucket: b}, nil
}

// Each calls fn with each key in the container and its value, or nil for a bucket.
func (w *Walk) Each(in Container, fn func(k, v []byte) error) error {
	c := in.NewCursor()
	for k, v := c.First(); ; k, v = c.Next() {
		if err := w.Met(k, v); err != nil || k == nil {
			return err
		}
		if in.Bucket == nil && v != nil {
			return TopLevelKey(k)
		}
		if err := fn(k, v); err != nil {
			return err
		}
	}
}

// TopLevelKey is the error of a key where only buckets can be.
func TopLevelKey(name []byte) error {
	return fmt.Errorf("%w: %s stands where only buckets can be", ErrDamage, Show(name))
}

// Count counts what is in the container, at any depth.
func (w *Walk) Count(in Container) (c Contents, err error) {
	err = w.Each(in, func(k, v []byte) error {
		if v != nil {
			c.Keys++
			return nil
		}
		c.Buckets++
		child, err := w.Child(in, k)
		if err != nil {
			return err
		}
		inside, err := w.Count(child)
		c.Add(inside)
		return err
	})
	return c, err
}

// Contents are numbers of buckets and of keys.
type Contents struct {
	Buckets uint64 `json:"buckets"`
	Keys    uint64 `json:"keys"`
}

func (c *Contents) Add(more Contents) {
	c.Buckets += more.Buckets
	c.Keys += more.Keys
}

// Total writes all that there is, for people.
func (c Contents) Total() string {
	return fmt.Sprintf("%s in %s", Plural(c.Keys, "key"), Plural(c.Buckets, "bucket"))
}

// Text writes a part of what there is, for people.
func (c Contents) Text() string {
	if c.Buckets == 0 {
		return Plural(c.Keys, "key")
	}
	return fmt.Sprintf("%s and %s", Plural(c.Keys, "key"), Plural(c.Buckets, "bucket"))
}
