package holdfast

import (
	"runtime/debug"

	"holdfast/internal/page"
	"holdfast/internal/tree"
)

// Cursor walks a bucket in the order of its keys. Nested buckets have a nil
// value. Keys and values are valid as long as the transaction and must not be
// changed.
//
// Next at the last element and Prev at the first return nil and stay there.
//
// The bucket may be changed during a walk. A cursor that stood on a key that was
// deleted since goes on from where it was. Next and Prev pass over keys that were put
// since the walk began, wherever they lie: so it meets what was there then, without
// what was deleted before it came there, and ends. First, Last and Seek begin a walk, and
// so does a Next after a Prev, or a Prev after a Next. (A key
// that was deleted last and is put again counts as never deleted. After Tx.Spill has
// written, what was put before that counts as there when the walk began.)
type Cursor struct {
	bucket *Bucket
	looks  bool // the caller asks Tx.Err
	core   tree.Cursor
}

// Bucket is the bucket that the cursor walks.
func (c *Cursor) Bucket() *Bucket { return c.bucket }

// First moves to the first element; nil if there is none.
func (c *Cursor) First() (key []byte, value []byte) {
	if !c.bucket.tx.managed {
		return c.caught((*Cursor).toFirst)
	}
	return c.toFirst()
}

// Last moves to the last element; nil if there is none.
func (c *Cursor) Last() (key []byte, value []byte) {
	if !c.bucket.tx.managed {
		return c.caught((*Cursor).toLast)
	}
	return c.toLast()
}

// Next moves to the next element; nil at the end.
func (c *Cursor) Next() (key []byte, value []byte) {
	if !c.bucket.tx.managed {
		if k, v := c.core.Near(); k != nil && !c.bucket.tx.ended.Load() {
			return k, v
		}
		return c.caught((*Cursor).forward)
	}
	// As forward, but without a call more, which a scan would notice. A managed
	// transaction has not ended.
	if k, v := c.core.Step(); k != nil {
		return k, v
	}
	return c.forward()
}

// Prev moves to the previous element; nil at the beginning.
func (c *Cursor) Prev() (key []byte, value []byte) {
	if !c.bucket.tx.managed {
		if k, v := c.core.NearBack(); k != nil && !c.bucket.tx.ended.Load() {
			return k, v
		}
		return c.caught((*Cursor).backward)
	}
	if k, v := c.core.StepBack(); k != nil {
		return k, v
	}
	return c.backward()
}

// Seek moves to the first key that is not less than seek; nil if there is none.
func (c *Cursor) Seek(seek []byte) (key []byte, value []byte) {
	tx := c.bucket.tx
	if tx.usable() != nil {
		return nil, nil
	}
	if !tx.managed {
		defer c.lost(debug.SetPanicOnFault(true), nil)
	}
	return hideBucket(c.found(c.core.Seek(seek)))
}

// Delete removes the key that the cursor stands on; ErrIncompatibleValue if it
// is a bucket.
func (c *Cursor) Delete() (err error) {
	tx := c.bucket.tx
	if err := tx.usable(); err != nil {
		return err
	}
	if !tx.managed {
		defer c.lost(debug.SetPanicOnFault(true), &err)
	}
	tx.change()
	err = tx.keep(c.bucket.core.DeleteAt(&c.core))
	tx.changed()
	return err
}

// caught is move in a transaction that is not managed: see pagefault.go. It stands
// apart because a function that defers is slower even where it does not.
func (c *Cursor) caught(move func(*Cursor) ([]byte, []byte)) (key, value []byte) {
	defer c.lost(debug.SetPanicOnFault(true), nil)
	return move(c)
}

// lost is Tx.caught for a call on a cursor, which a fault left on its way: it
// stands nowhere then.
func (c *Cursor) lost(before bool, err *error) {
	debug.SetPanicOnFault(before)
	if recovered := recover(); recovered != nil {
		c.core.Init(c.bucket.core.Tree())
		c.bucket.tx.recovered(recovered, err, c.looks)
	}
}

func (c *Cursor) toFirst() (key, value []byte) { return hideBucket(c.first()) }

func (c *Cursor) toLast() (key, value []byte) {
	if c.bucket.tx.usable() != nil {
		return nil, nil
	}
	return hideBucket(c.found(c.core.Last()))
}

func (c *Cursor) forward() (key, value []byte) {
	if c.bucket.tx.usable() != nil {
		return nil, nil
	}
	if k, v := c.core.Step(); k != nil {
		return k, v
	}
	if k, v, flags, ok := c.core.StepEdited(); ok {
		return hideBucket(k, v, flags)
	}
	return hideBucket(c.found(c.core.Next()))
}

func (c *Cursor) backward() (key, value []byte) {
	if c.bucket.tx.usable() != nil {
		return nil, nil
	}
	if k, v := c.core.StepBack(); k != nil {
		return k, v
	}
	if k, v, flags, ok := c.core.StepEditedBack(); ok {
		return hideBucket(k, v, flags)
	}
	return hideBucket(c.found(c.core.Prev()))
}

func (c *Cursor) first() (key, value []byte, flags uint32) {
	if c.bucket.tx.usable() != nil {
		return nil, nil, 0
	}
	return c.found(c.core.First())
}

func (c *Cursor) next() (key, value []byte, flags uint32) {
	if c.bucket.tx.usable() != nil {
		return nil, nil, 0
	}
	return c.found(c.core.Next())
}

func (c *Cursor) found(e page.Element, ok bool, err error) (key, value []byte, flags uint32) {
	if err != nil {
		c.bucket.tx.unsaid(c.bucket.tx.keep(err), c.looks)
		return nil, nil, 0
	}
	if !ok {
		return nil, nil, 0
	}
	c.bucket.tx.lend()
	return e.Key, e.Value[:len(e.Value):len(e.Value)], e.Flags
}

func hideBucket(key, value []byte, flags uint32) ([]byte, []byte) {
	if flags&page.BucketFlag != 0 {
		return key, nil
	}
	return key, value
}
