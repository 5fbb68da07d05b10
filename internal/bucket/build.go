package bucket

import (
	"holdfast/internal/page"
	"holdfast/internal/tree"
)

// Builder makes buckets of keys that come in ascending order, nested ones depth first,
// without editing a tree: see tree.Builder for what it asks of keys and values, and for
// what an error leaves. The bucket that was opened last and not closed is the one to
// which things are added; the outermost one is the root bucket.
type Builder struct {
	tx   *Tx
	w    tree.Writer
	fill float64 // of all but the root bucket
	open []*building
	idle []*building // closed ones
}

// building is a bucket that is not closed.
type building struct {
	tree     tree.Builder
	name     []byte
	sequence uint64
}

// NewBuilder begins a root bucket. Pages come from w; fill is the share to which those of
// nested buckets are filled, see tree.Tree.Write.
func NewBuilder(tx *Tx, w tree.Writer, fill float64) *Builder {
	b := &Builder{tx: tx, w: w, fill: fill}
	b.begin(nil, 0, tree.DefaultFill)
	return b
}

func (b *Builder) begin(name []byte, sequence uint64, fill float64) {
	in := new(building)
	if last := len(b.idle) - 1; last >= 0 {
		in, b.idle = b.idle[last], b.idle[:last]
	}
	in.name, in.sequence = name, sequence
	in.tree.Begin(b.tx.Edit, b.w, fill)
	b.open = append(b.open, in)
}

func (b *Builder) top() *tree.Builder { return &b.open[len(b.open)-1].tree }

// Put adds a key. Errors are those of Bucket.Put, and tree.ErrUnordered.
func (b *Builder) Put(key, value []byte) error {
	if err := checkPair(key, value); err != nil {
		return err
	}
	return b.top().Append(key, value, 0)
}

// Open begins a nested bucket in the one that was opened last. Errors are those of
// Bucket.Create; that name is not behind what came before shows when it is closed.
func (b *Builder) Open(name []byte, sequence uint64) error {
	if err := checkName(name, len(b.open)-1); err != nil {
		return err
	}
	b.begin(name, sequence, b.fill)
	return nil
}

// Close ends the nested bucket that was opened last and puts it into the one before.
func (b *Builder) Close() error {
	name, value, err := b.end()
	if err != nil {
		return err
	}
	return b.top().Append(name, value, page.BucketFlag)
}

// CloseInto is Close for a bucket in the root bucket, which puts it into root, an edited
// one of the same transaction, in place of the one that is built. Errors are those of
// Bucket.Create.
func (b *Builder) CloseInto(root *Bucket) error {
	name, value, err := b.end()
	if err != nil {
		return err
	}
	if err := root.vacant(name); err != nil {
		return err
	}
	return root.tree.Put(name, value, page.BucketFlag)
}

func (b *Builder) end() (name, value []byte, err error) {
	last := len(b.open) - 1
	in := b.open[last]
	b.open, b.idle = b.open[:last], append(b.idle, in)
	h := page.Bucket{Sequence: in.sequence}
	if size, ok := in.tree.InlineSize(b.w.PageSize() / inlineShare); ok {
		value = encodeHeader(h, size)
		in.tree.Inline(value[page.BucketHeaderSize:])
		return in.name, value, nil
	}
	if h.Root, err = in.tree.Finish(); err != nil {
		return nil, nil, err
	}
	return in.name, encodeHeader(h, 0), nil
}

// Finish makes what was built the content of root, an edited root bucket that nobody
// uses and that holds nothing.
func (b *Builder) Finish(root *Bucket) error {
	id, err := b.top().Finish()
	if err != nil {
		return err
	}
	root.altered = true
	return root.tree.Replace(id)
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
