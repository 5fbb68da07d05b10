package bucket

import (
	"bytes"
	"errors"

	"holdfast/internal/page"
	"holdfast/internal/tree"
)

// Errors that callers of bbolt compare with ==.
var (
	ErrBucketNotFound     = errors.New("bucket not found")
	ErrBucketExists       = errors.New("bucket already exists")
	ErrBucketNameRequired = errors.New("bucket name required")
	ErrKeyRequired        = errors.New("key required")
	ErrKeyTooLarge        = errors.New("key too large")
	ErrValueTooLarge      = errors.New("value too large")
	ErrIncompatibleValue  = errors.New("incompatible value")
	ErrSameBuckets        = errors.New("the source and target are the same bucket")
	ErrDifferentDB        = errors.New("the source and target buckets are in different database files")
	ErrTxNotWritable      = errors.New("tx not writable")
)

// ErrUnordered is returned by Append for a key that is not after all others.
var ErrUnordered = errors.New("the key is not after all others of its bucket")

// ErrTooDeep is returned when creating a bucket more than MaxNesting deep.
var ErrTooDeep = errors.New("buckets are nested too deep")

// MaxNesting is how deep buckets can be created, and maxNesting how deep they
// are believed to be: moving may nest them deeper than creating.
const (
	MaxNesting = 10_000
	maxNesting = 100_000
)

// Tx is what the buckets of one transaction share.
type Tx struct {
	Source tree.Reader
	Writer tree.Writer // nil: read-only
	Edit   *tree.Edit  // nil: read-only
	// Appender takes what Bucket.Append completes. nil until that is called.
	Appender tree.Appender
	// Size is the bytes of the state with which a writing transaction began; 0: not known.
	Size int64

	named int64        // bytes of the names of buckets that it has opened there
	kept  []*tree.Tree // scratch of Spill
}

// Bucket is a bucket as one transaction sees it. For reading, any number of
// goroutines may use it; an edit excludes all other use of the transaction.
type Bucket struct {
	tx       *Tx
	tree     tree.Tree
	sequence uint64
	depth    int       // 0 for the root bucket
	altered  bool      // the header differs from the stored one
	gone     bool      // deleted in this transaction
	early    bool      // its value was, perhaps, in a page that was written early
	children *children // nil: none; readers remember none
	outer    any
	fill     *float64 // in outer
	wide     bool     // leaves may have several pages
	tight    bool     // and so may those of elements of more than a page
	dense    bool     // see SetDense

	header [page.BucketHeaderSize]byte // memory of what write returns
}

// inlineShare is the part of a page that an inline bucket's page may take.
const inlineShare = 4

// OpenRoot makes b the root bucket.
func (b *Bucket) OpenRoot(tx *Tx, root page.ID, sequence uint64) {
	*b = Bucket{tx: tx, sequence: sequence, tree: tree.Open(tx.Source, tx.Edit, root)}
}

// SetOuter remembers the object that the layer above made for b, and where in
// it stands the share of a page to fill when one is split.
func (b *Bucket) SetOuter(o any, fill *float64) { b.outer, b.fill = o, fill }

// SetWide says whether leaves get several pages where one would be filled badly, as long as b is open; see tree.WideFill.
func (b *Bucket) SetWide(wide bool) { b.wide = wide }

// SetTight says that elements of more than a page that are appended share pages where SetWide has said that others do; see
// tree.TightFill.
func (b *Bucket) SetTight() { b.tight = true }

// SetDense says that sorted keys are merged into b again and again; see tree.DenseFill.
func (b *Bucket) SetDense() { b.dense = true }

// IsWide tells whether b was written so, as far as its beginning shows.
func (b *Bucket) IsWide() bool { return b.tree.IsWide() }

func (b *Bucket) fillShare() float64 {
	switch {
	case b.wide && b.tight:
		return tree.TightFill
	case b.wide:
		return tree.WideFill
	case b.dense:
		return tree.DenseFill
	case b.fill == nil:
		return tree.DefaultFill
	}
	return min(*b.fill, tree.FullFill)
}

// Changed tells whether the transaction changed b or a bucket below it.
func (b *Bucket) Changed() bool {
	if b.altered || b.tree.Edited() {
		return true
	}
	for _, c := range b.children.list() {
		if c.bucket.Changed() {
			return true
		}
	}
	return false
}

// Outer is what SetOuter was given.
func (b *Bucket) Outer() any { return b.outer }

// Writable tells whether the transaction may change b.
func (b *Bucket) Writable() bool { return b.tx.Edit != nil }

// Root is b's root page as of the transaction's begin, 0 if b is inline or new.
func (b *Bucket) Root() page.ID { return b.tree.Root() }

// Tree is b's tree, for cursors and walks.
func (b *Bucket) Tree() *tree.Tree { return &b.tree }

// Child is the nested bucket name if this transaction has opened it already.
// Read-only transactions remember none.
func (b *Bucket) Child(name []byte) *Bucket { return b.children.get(name) }

// OpenTop makes child the bucket name in the root bucket of a read-only
// transaction, whose root page is root; false if there is none.
func OpenTop(tx *Tx, root page.ID, name []byte, child *Bucket) (bool, error) {
	t := tree.Open(tx.Source, nil, root)
	value, flags, ok, err := t.Lookup(name)
	if err != nil || !ok || flags&page.BucketFlag == 0 {
		return false, err
	}
	if err := child.openValue(tx, value); err != nil {
		return false, err
	}
	child.depth = 1
	return true, nil
}

// OpenChild makes child the nested bucket name; false if there is none. In a
// writing transaction b remembers child: ask Child first.
func (b *Bucket) OpenChild(name []byte, child *Bucket) (bool, error) {
	if b.gone { // its buckets went with it
		return false, nil
	}
	e, ok, err := b.tree.Get(name)
	if err != nil || !ok || !e.IsBucket() {
		return false, err
	}
	if b.tree.UneditedInline() {
		return false, errNestedInline()
	}
	if err := child.openValue(b.tx, e.Value); err != nil {
		return false, err
	}
	if b.Writable() {
		// Each is remembered, with its name. On a damaged page many names may share bytes.
		if b.tx.named += int64(len(name)); b.tx.Size > 0 && b.tx.named > b.tx.Size {
			return false, page.Corruptf(b.Root(), "the names of buckets take more bytes than the file has")
		}
	}
	b.remember(name, child)
	return true, nil
}

func (b *Bucket) openValue(tx *Tx, value []byte) error {
	h, inline, err := page.DecodeBucket(value)
	if err != nil {
		return err
	}
	*b = Bucket{tx: tx, sequence: h.Sequence}
	if h.Root == 0 {
		b.tree = tree.OpenInline(tx.Source, tx.Edit, inline)
	} else {
		b.tree = tree.Open(tx.Source, tx.Edit, h.Root)
	}
	return nil
}

func (b *Bucket) remember(name []byte, child *Bucket) {
	child.depth = b.depth + 1
	child.early = child.early || b.tree.Early()
	if !b.Writable() {
		return
	}
	if b.children == nil {
		b.children = new(children)
	}
	b.children.set(name, child)
}

// errNestedInline is the damage of an inline bucket in the file that holds a
// bucket. None does, and a damaged one could hold itself.
func errNestedInline() error {
	return page.Corruptf(0, "an inline bucket holds a bucket")
}

// writable is the error of an edit of b, if any.
func (b *Bucket) writable() error {
	if !b.Writable() {
		return ErrTxNotWritable
	}
	if b.gone {
		return ErrBucketNotFound
	}
	return nil
}

// Lookup is Get, for reads.
func (b *Bucket) Lookup(key []byte) (value []byte, flags uint32, ok bool, err error) {
	return b.tree.Lookup(key)
}

// LookupUnsealed is Lookup, in a reading transaction, for a caller that verifies the value itself. For ahead, see
// tree.LookupUnsealed.
func (b *Bucket) LookupUnsealed(key []byte, ahead func(page.ID)) (value []byte, flags uint32, ok bool, err error) {
	return b.tree.LookupUnsealed(key, ahead)
}

// Get finds key, a bucket or not.
func (b *Bucket) Get(key []byte) (page.Element, bool, error) { return b.tree.Get(key) }

// Put sets key to value, which must stay as it is until the transaction ends.
func (b *Bucket) Put(key, value []byte) error {
	err := b.writable()
	if err == nil {
		err = checkPair(key, value)
	}
	if err != nil {
		return err
	}
	return valueOnly(b.tree.PutValue(key, value))
}

// Delete removes key; nothing happens if it is not there.
func (b *Bucket) Delete(key []byte) error {
	if err := b.writable(); err != nil {
		return err
	}
	return valueOnly(b.tree.DeleteValue(key))
}

// checkPair is the error of a key with a value that no file can hold.
func checkPair(key, value []byte) error {
	switch {
	case len(key) == 0:
		return ErrKeyRequired
	case len(key) > page.MaxKeySize:
		return ErrKeyTooLarge
	case int64(len(value)) > page.MaxValueSize:
		return ErrValueTooLarge
	}
	return nil
}

// checkName is the error of a name for a bucket in one at depth.
func checkName(name []byte, depth int) error {
	switch {
	case len(name) == 0:
		return ErrBucketNameRequired
	case len(name) > page.MaxKeySize:
		return ErrKeyTooLarge
	case depth >= MaxNesting:
		return ErrTooDeep
	}
	return nil
}

// valueOnly is the error of an edit that is refused for buckets.
func valueOnly(ok bool, err error) error {
	if err == nil && !ok {
		return ErrIncompatibleValue
	}
	return err
}

// DeleteAt removes the element that c, a cursor over b, stands on.
func (b *Bucket) DeleteAt(c *tree.Cursor) error {
	if err := b.writable(); err != nil {
		return err
	}
	return valueOnly(c.DeleteValue())
}

// Create makes child a new, empty nested bucket of b.
func (b *Bucket) Create(name []byte, child *Bucket) error {
	err := b.writable()
	if err == nil {
		err = checkName(name, b.depth)
	}
	if err == nil {
		err = b.vacant(name)
	}
	if err != nil {
		return err
	}
	value := emptyValue(0)
	if err := b.tree.Put(name, value, page.BucketFlag); err != nil {
		return err
	}
	if err := child.openValue(b.tx, value); err != nil {
		return err
	}
	b.remember(name, child)
	return nil
}

// emptyValue is the value of a new bucket: header and empty leaf.
func emptyValue(sequence uint64) []byte {
	value := encodeHeader(page.Bucket{Sequence: sequence}, page.HeaderSize)
	enc := page.NewLeaf(value[page.BucketHeaderSize:], 0, 0, 0)
	enc.Finish(false)
	return value
}

// vacant is the error of a new bucket called name if there is something of that name.
func (b *Bucket) vacant(name []byte) error {
	e, ok, err := b.tree.Get(name)
	switch {
	case err != nil || !ok:
		return err
	case e.IsBucket():
		return ErrBucketExists
	}
	return ErrIncompatibleValue
}

// get finds the nested bucket name for an edit of it as a whole.
func (b *Bucket) get(name []byte) (page.Element, error) {
	e, ok, err := b.tree.Get(name)
	if err != nil {
		return e, err
	}
	if !ok {
		return e, ErrBucketNotFound
	}
	if !e.IsBucket() {
		return e, ErrIncompatibleValue
	}
	return e, nil
}

// DeleteChild removes the nested bucket name with everything in it.
func (b *Bucket) DeleteChild(name []byte) error {
	if err := b.writable(); err != nil {
		return err
	}
	e, err := b.get(name)
	if err != nil {
		return err
	}
	child := b.children.get(name)
	if child == nil {
		child = new(Bucket)
		if err := child.openValue(b.tx, e.Value); err != nil {
			return err
		}
	}
	free := func() error { return child.free(0) }
	if b.tx.Appender != nil {
		err = b.tx.Appender.Quietly(free)
	} else {
		err = free()
	}
	if err != nil {
		return err
	}
	b.children.remove(name)
	_, err = b.tree.Delete(name)
	return err
}

// free gives up all pages of b and of the buckets in it. What this transaction
// has edited counts with the pages that it came from, so that each page of the
// state before is freed once, whatever happened to it since.
func (b *Bucket) free(depth int) error {
	if depth > maxNesting {
		return page.Corruptf(b.Root(), "buckets are nested more than %d deep", maxNesting)
	}
	b.gone = true
	defer b.tree.Clear() // for what the tree had may be used again
	return b.tree.Walk(func(l *tree.Level) error {
		if id, n := l.Base(); n != 0 {
			if err := b.tx.Writer.Free(id, n); err != nil {
				return err
			}
		}
		if !l.IsLeaf() {
			return nil
		}
		for i := range l.Count() {
			e, err := l.Element(i)
			if err != nil {
				return err
			}
			if !e.IsBucket() {
				continue
			}
			if l.Inline() {
				return errNestedInline()
			}
			child := b.children.get(e.Key)
			if child == nil {
				child = new(Bucket)
				if err := child.openValue(b.tx, e.Value); err != nil {
					return err
				}
			}
			if err := child.free(depth + 1); err != nil {
				return err
			}
		}
		return nil
	})
}

// Move makes the nested bucket name of b a nested bucket of to, with all that
// this transaction did to it.
func (b *Bucket) Move(name []byte, to *Bucket) error {
	if err := b.writable(); err != nil {
		return err
	}
	if err := to.writable(); err != nil {
		return err
	}
	if b.tx != to.tx {
		return ErrDifferentDB
	}
	e, err := b.get(name)
	if err != nil {
		return err
	}
	if b == to {
		return ErrSameBuckets
	}
	if err := to.vacant(name); err != nil {
		return err
	}
	child := b.children.get(name)
	if child != nil && child.holds(to) {
		return ErrSameBuckets // a bucket cannot be moved into itself
	}
	value := bytes.Clone(e.Value)
	if _, err := b.tree.Delete(name); err != nil {
		return err
	}
	if err := to.tree.Put(name, value, page.BucketFlag); err != nil {
		return err
	}
	if child != nil {
		b.children.remove(name)
		to.remember(name, child)
	}
	return nil
}

// holds tells whether to is b or a bucket below it. (An opened bucket is always
// in its parent's children.)
func (b *Bucket) holds(to *Bucket) bool {
	if b == to {
		return true
	}
	for _, c := range b.children.list() {
		if c.bucket.holds(to) {
			return true
		}
	}
	return false
}

// Sequence is the bucket's counter.
func (b *Bucket) Sequence() uint64 { return b.sequence }

// SetSequence sets the counter.
func (b *Bucket) SetSequence(v uint64) error {
	if err := b.writable(); err != nil {
		return err
	}
	b.sequence = v
	b.altered = true
	return nil
}
