package holdfast

import (
	"bytes"
	"iter"
	"runtime/debug"

	"holdfast/internal/bucket"
	"holdfast/internal/page"
)

// Bucket is a collection of keys with values and of nested buckets. It is
// valid as long as its transaction.
type Bucket struct {
	// FillPercent is the share of a page to which it is filled when pages are
	// split. DefaultFillPercent lets Holdfast choose. It is not stored.
	FillPercent float64

	tx    *Tx
	keeps bool // see KeepDamage
	core  bucket.Bucket
}

// Tx is the bucket's transaction.
func (b *Bucket) Tx() *Tx { return b.tx }

// Root is the number of the bucket's root page; 0 if it is inline.
func (b *Bucket) Root() Pgid { return b.core.Root() }

// RootPage is Root.
func (b *Bucket) RootPage() Pgid { return b.core.Root() }

// Writable tells whether the bucket's transaction can change it.
func (b *Bucket) Writable() bool { return b.tx.Writable() }

// log tells a logger that wants to know of a change.
func (b *Bucket) log(did string, key []byte, err error) {
	lg := b.tx.db.logger
	if lg == discardLogger {
		return
	}
	if err != nil {
		lg.Errorf("%s %q failed: %v", did, key, err)
		return
	}
	lg.Debugf("%s %q successfully", did, key)
}

// Cursor is a cursor over the bucket.
func (b *Bucket) Cursor() *Cursor {
	b.tx.cursors.Add(1)
	c := &Cursor{bucket: b, looks: b.keeps}
	c.core.Init(b.core.Tree())
	c.core.Copies = !b.tx.managed
	return c
}

// Bucket opens a nested bucket; nil if there is none. In a writing transaction
// each bucket is opened once and then returned again.
func (b *Bucket) Bucket(name []byte) *Bucket {
	child, err := b.open(name)
	b.tx.unsaid(err, b.keeps)
	return child
}

// open is Bucket with its error, and keeps it if that is damage.
func (b *Bucket) open(name []byte) (_ *Bucket, err error) {
	if err := b.tx.usable(); err != nil {
		return nil, err
	}
	if !b.tx.managed {
		defer b.tx.caught(debug.SetPanicOnFault(true), &err)
	}
	if child := b.core.Child(name); child != nil {
		return child.Outer().(*Bucket), nil
	}
	child := &Bucket{FillPercent: DefaultFillPercent, tx: b.tx, keeps: b.keeps}
	if ok, err := b.core.OpenChild(name, &child.core); err != nil || !ok {
		return nil, b.tx.keep(err)
	}
	child.core.SetOuter(child, &child.FillPercent)
	return child, nil
}

// CreateBucket creates a nested bucket. Errors: ErrBucketExists,
// ErrBucketNameRequired, ErrKeyTooLarge, ErrIncompatibleValue if name is a key.
func (b *Bucket) CreateBucket(name []byte) (_ *Bucket, err error) {
	if err := b.tx.usable(); err != nil {
		return nil, err
	}
	if !b.tx.managed {
		defer b.tx.caught(debug.SetPanicOnFault(true), &err)
	}
	child := &Bucket{FillPercent: DefaultFillPercent, tx: b.tx}
	b.tx.change()
	err = b.tx.keep(b.core.Create(name, &child.core))
	b.tx.changed()
	b.log("Creating bucket", name, err)
	if err != nil {
		return nil, err
	}
	child.core.SetOuter(child, &child.FillPercent)
	return child, nil
}

// CreateBucketIfNotExists opens a nested bucket and creates it first if there
// is none.
func (b *Bucket) CreateBucketIfNotExists(name []byte) (*Bucket, error) {
	if b.Writable() {
		if child := b.Bucket(name); child != nil {
			return child, nil
		}
	}
	return b.CreateBucket(name)
}

// DeleteBucket removes a nested bucket with everything in it. Errors:
// ErrBucketNotFound, ErrIncompatibleValue if name is a key.
func (b *Bucket) DeleteBucket(name []byte) (err error) {
	if err := b.tx.usable(); err != nil {
		return err
	}
	if !b.tx.managed {
		defer b.tx.caught(debug.SetPanicOnFault(true), &err)
	}
	b.tx.change()
	err = b.tx.keep(b.core.DeleteChild(name))
	b.tx.changed()
	b.log("Deleting bucket", name, err)
	return err
}

// MoveBucket moves the nested bucket name to dst, with all that the
// transaction did to it. Errors: ErrBucketNotFound, ErrIncompatibleValue,
// ErrBucketExists, ErrSameBuckets if dst is b or lies in the bucket itself,
// ErrDifferentDB if dst belongs to another transaction.
func (b *Bucket) MoveBucket(name []byte, dst *Bucket) (err error) {
	if err := b.tx.usable(); err != nil {
		return err
	}
	if err := dst.tx.usable(); err != nil {
		return err
	}
	if !b.tx.managed {
		defer b.tx.caught(debug.SetPanicOnFault(true), &err)
	}
	b.tx.change()
	err = b.tx.keep(b.core.Move(name, &dst.core))
	b.tx.changed()
	b.log("Moving bucket", name, err)
	return err
}

// Get is the value of key; nil if there is none or key is a bucket. It is
// valid as long as the transaction and must not be changed.
func (b *Bucket) Get(key []byte) []byte {
	if b.tx.usable() != nil {
		return nil
	}
	if !b.tx.managed {
		defer b.lost(debug.SetPanicOnFault(true))
	}
	value, flags, ok, err := b.core.Lookup(key)
	if err != nil {
		b.tx.unsaid(b.tx.keep(err), b.keeps)
		return nil
	}
	if !ok || flags&page.BucketFlag != 0 {
		return nil
	}
	b.tx.lend()
	return value
}

// AppendValue appends the value of key to dst; false if there is none or key is a bucket.
// Unlike that of Get it is the caller's: so no page of the file has to stay as it is for it, see
// Tx.Spill.
func (b *Bucket) AppendValue(dst, key []byte) (_ []byte, found bool) {
	if b.tx.usable() != nil {
		return dst, false
	}
	if !b.tx.managed {
		defer b.lost(debug.SetPanicOnFault(true))
	}
	value, flags, ok, err := b.core.Lookup(key)
	if err != nil {
		b.tx.unsaid(b.tx.keep(err), b.keeps)
	}
	if err != nil || !ok || flags&page.BucketFlag != 0 {
		return dst, false
	}
	return append(dst, value...), true
}

// Put sets key to value. key is copied; value must stay as it is until the
// transaction has ended. Errors: ErrKeyRequired, ErrKeyTooLarge,
// ErrValueTooLarge, ErrIncompatibleValue if key is a bucket.
func (b *Bucket) Put(key []byte, value []byte) (err error) {
	if err := b.tx.usable(); err != nil {
		return err
	}
	if !b.tx.managed {
		defer b.tx.caught(debug.SetPanicOnFault(true), &err)
	}
	if value == nil {
		value = []byte{} // nil would mean a bucket
	}
	b.tx.change()
	err = b.tx.keep(b.core.Put(key, value))
	b.tx.changed()
	b.log("Putting key", key, err)
	return err
}

// Delete removes key. Nothing happens if it does not exist.
// ErrIncompatibleValue if it is a bucket.
func (b *Bucket) Delete(key []byte) (err error) {
	if err := b.tx.usable(); err != nil {
		return err
	}
	if !b.tx.managed {
		defer b.tx.caught(debug.SetPanicOnFault(true), &err)
	}
	b.tx.change()
	err = b.tx.keep(b.core.Delete(key))
	b.tx.changed()
	b.log("Deleting key", key, err)
	return err
}

// Sequence is the bucket's counter.
func (b *Bucket) Sequence() uint64 { return b.core.Sequence() }

// SetSequence sets the bucket's counter.
func (b *Bucket) SetSequence(v uint64) error {
	if err := b.tx.usable(); err != nil {
		return err
	}
	return b.core.SetSequence(v)
}

// NextSequence adds one to the bucket's counter and returns it.
func (b *Bucket) NextSequence() (uint64, error) {
	if err := b.SetSequence(b.Sequence() + 1); err != nil {
		return 0, err
	}
	return b.Sequence(), nil
}

// ForEach calls fn for each key with its value, and for each nested bucket
// with nil, in the order of the keys, until it returns an error, which is
// returned. fn may change the bucket, see Cursor: what it puts is not visited.
// (With bbolt it must not.)
func (b *Bucket) ForEach(fn func(k, v []byte) error) error {
	return b.forEach(fn, false)
}

// forEach is ForEach; keysOnly says that fn does not read values.
func (b *Bucket) forEach(fn func(k, v []byte) error, keysOnly bool) error {
	if err := b.tx.usable(); err != nil {
		return err
	}
	c := b.Cursor()
	c.looks, c.core.KeysOnly = true, keysOnly
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if err := fn(k, v); err != nil {
			return err
		}
	}
	return b.tx.Err()
}

// ForEachBucket calls fn with the name of each nested bucket, as ForEach does.
func (b *Bucket) ForEachBucket(fn func(k []byte) error) (err error) {
	if err := b.tx.usable(); err != nil {
		return err
	}
	if !b.tx.managed {
		defer b.tx.caught(debug.SetPanicOnFault(true), &err)
	}
	c := b.Cursor()
	c.looks, c.core.KeysOnly = true, true
	for k, _, flags := c.first(); k != nil; k, _, flags = c.next() {
		if flags&page.BucketFlag == 0 {
			continue
		}
		if err := fn(k); err != nil {
			return err
		}
	}
	return b.tx.Err()
}

// All iterates over the bucket in the order of its keys. The value of a nested
// bucket is nil. If Tx.Err is not nil afterwards the iteration ended early.
//
// The loop may delete keys, replace their values and put new keys: each key that was there is met
// once, and what is new is not met, see Cursor.
func (b *Bucket) All() iter.Seq2[[]byte, []byte] { return b.Range(nil, nil) }

// Range iterates over the keys from from on and before to. nil stands for the
// beginning and the end. See All.
func (b *Bucket) Range(from, to []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		c := b.Cursor()
		k, v := c.Seek(from)
		for ; k != nil; k, v = c.Next() {
			if to != nil && !b.before(k, to) || !yield(k, v) {
				return
			}
		}
	}
}

// Prefix iterates over the keys that begin with prefix. See All.
func (b *Bucket) Prefix(prefix []byte) iter.Seq2[[]byte, []byte] {
	return b.Range(prefix, afterPrefix(prefix))
}

// afterPrefix is the first key after all that begin with prefix; nil if there can be none.
func afterPrefix(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			after := bytes.Clone(prefix[:i+1])
			after[i]++
			return after
		}
	}
	return nil
}

// Scan calls fn with the keys from from on, nil: from the first, and their values, in order, until it
// returns false. The value of a nested bucket is nil. Unlike those of a Cursor, keys and values are valid only until
// fn returns: so no page of the file has to stay as it is for them, see Tx.Spill. fn must not
// change the database.
func (b *Bucket) Scan(from []byte, fn func(k, v []byte) bool) (err error) {
	if err := b.tx.usable(); err != nil {
		return err
	}
	if !b.tx.managed {
		defer b.tx.caught(debug.SetPanicOnFault(true), &err)
	}
	c := b.Cursor()
	e, ok, err := c.core.Seek(from)
	for ok && err == nil {
		k, v := hideBucket(e.Key, e.Value, e.Flags)
		for more := true; more; more = k != nil {
			if !fn(k, v) {
				return nil
			}
			k, v = c.core.Step()
		}
		e, ok, err = c.core.Next()
	}
	return b.tx.keep(err)
}

// before tells whether k, a key in the mapping, is below to.
func (b *Bucket) before(k, to []byte) bool {
	if !b.tx.managed {
		defer b.lost(debug.SetPanicOnFault(true))
	}
	return bytes.Compare(k, to) < 0
}

// Backward iterates over the bucket from its last key to its first. See All.
func (b *Bucket) Backward() iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		c := b.Cursor()
		for k, v := c.Last(); k != nil; k, v = c.Prev() {
			if !yield(k, v) {
				return
			}
		}
	}
}
