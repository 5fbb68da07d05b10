package differential

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	berrors "go.etcd.io/bbolt/errors"

	"holdfast/test/stock/ops"
)

// node is a bucket of the model.
type node struct {
	entries map[string]*entry
	keys    []string // sorted
	buckets []string // names of the nested buckets, in any order
	seq     uint64
	edits   int    // changes to its elements
	removed string // the last, and when it had been put
	born    int
	thinned bool // elements were removed since the transaction began
	dirty   bool // it, or a bucket in it, was changed since the transaction began
}

// entry is an element of a bucket: a value or a nested bucket.
type entry struct {
	value  []byte
	child  *node
	nilPut bool // put with a nil value in this transaction
	born   int  // edits of the bucket when it was put in this transaction
}

func newNode() *node { return &node{entries: map[string]*entry{}} }

// clone copies the bucket and all in it for a transaction that may change it.
func (n *node) clone() *node {
	c := &node{
		entries: make(map[string]*entry, len(n.entries)),
		keys:    slices.Clone(n.keys),
		buckets: slices.Clone(n.buckets),
		seq:     n.seq,
	}
	for k, e := range n.entries {
		copied := &entry{value: e.value}
		if e.child != nil {
			copied.child = e.child.clone()
		}
		c.entries[k] = copied
	}
	return c
}

func (n *node) set(key string, e *entry) {
	old := n.entries[key]
	switch {
	case old != nil:
		e.born = old.born
	case key == n.removed: // which is as old as it was
		e.born = n.born
	default:
		e.born = n.edits + 1
	}
	if old == nil {
		i, _ := slices.BinarySearch(n.keys, key)
		n.keys = slices.Insert(n.keys, i, key)
	}
	if e.child != nil {
		n.buckets = append(n.buckets, key)
	}
	n.entries[key] = e
	n.edits++
}

func (n *node) remove(key string) {
	i, ok := slices.BinarySearch(n.keys, key)
	if !ok {
		return
	}
	n.keys = slices.Delete(n.keys, i, i+1)
	if n.entries[key].child != nil {
		j := slices.Index(n.buckets, key)
		n.buckets = slices.Delete(n.buckets, j, j+1)
	}
	n.removed, n.born = key, n.entries[key].born
	delete(n.entries, key)
	n.edits++
	n.thinned = true
}

// find is the bucket at path, nil if there is none. visit is called with each
// bucket on the way, the last included.
func (n *node) find(path []string, visit func(*node)) *node {
	for i := 0; ; i++ {
		if visit != nil {
			visit(n)
		}
		if i == len(path) {
			return n
		}
		e := n.entries[path[i]]
		if e == nil || e.child == nil {
			return nil
		}
		n = e.child
	}
}

// content is the bucket as the ops package wants it.
func (n *node) content() *ops.Content {
	c := &ops.Content{Sequence: n.seq}
	for _, k := range n.keys {
		e := n.entries[k]
		el := ops.Element{Key: []byte(k), Value: e.value}
		if e.child != nil {
			el.Bucket = e.child.content()
		}
		c.Elements = append(c.Elements, el)
	}
	return c
}

// top is the content of n alone, without what is in its buckets.
func (n *node) top() *ops.Content {
	c := &ops.Content{}
	for _, k := range n.keys {
		e := n.entries[k]
		el := ops.Element{Key: []byte(k), Value: e.value}
		if e.child != nil {
			el.Bucket = &ops.Content{}
		}
		c.Elements = append(c.Elements, el)
	}
	return c
}

// cursor is a cursor of the model. It stands on a key, whether that key is
// still there or not.
type cursor struct {
	n      *node
	key    string
	on     bool // it stands on key
	placed bool // it has been moved at all
	ended  bool // the last move found nothing
	edits  int  // of the bucket, at the last move
	since  int  // of the bucket, when the walk began
	moved  ops.Kind
}

// stale tells whether the bucket was changed since the cursor moved.
func (c *cursor) stale() bool { return c.edits != c.n.edits }

// older are the keys that were there when the walk began: what was put since Next and Prev pass over. First, Last and Seek begin one, and
// so does turning round.
func (c *cursor) older() []string {
	return slices.DeleteFunc(slices.Clone(c.n.keys), func(key string) bool { return c.n.entries[key].born > c.since })
}

// transaction is a transaction of the model.
type transaction struct {
	root     *node
	writable bool
	ended    bool
	cursors  map[int]*cursor
}

// model is a database in memory.
type model struct {
	committed *node
	txs       map[int]*transaction
	moves     bool // the engines can move and inspect buckets
}

func newModel() *model {
	return &model{committed: newNode(), txs: map[int]*transaction{}, moves: true}
}

func fail(err error) ops.Result { return ops.Result{Err: err.Error()} }

// do applies op and gives the result that it has to have.
func (m *model) do(op ops.Op) ops.Result {
	switch op.Kind {
	case ops.Open, ops.Close, ops.WriteTo, ops.Compact:
		return ops.Result{}
	case ops.Begin:
		t := &transaction{root: m.committed, writable: op.Writable, cursors: map[int]*cursor{}}
		if op.Writable {
			t.root = m.committed.clone()
		}
		m.txs[op.Tx] = t
		return ops.Result{}
	}
	t := m.txs[op.Tx]
	switch op.Kind {
	case ops.Commit, ops.Rollback:
		return m.end(t, op.Kind == ops.Commit)
	case ops.Check:
		return ops.Result{}
	case ops.Dump:
		return ops.Result{Value: t.root.content().Digest()}
	case ops.List:
		return ops.Result{Lines: t.root.content().List()}
	}
	if op.Kind >= ops.First {
		return t.moveCursor(op)
	}
	b := t.root.find(op.Path, nil)
	if b == nil {
		return ops.Result{Err: ops.NoBucket}
	}
	switch op.Kind {
	case ops.CreateBucket, ops.CreateBucketIfNotExists, ops.DeleteBucket:
		return t.changeBucket(b, op)
	case ops.MoveBucket:
		if !m.moves {
			return ops.Result{Err: ops.Unsupported}
		}
		return t.moveBucket(b, op)
	case ops.Put, ops.Delete:
		return t.change(b, op)
	case ops.SetSequence, ops.NextSequence:
		return t.changeSequence(b, op)
	case ops.Inspect:
		if !m.moves {
			return ops.Result{Err: ops.Unsupported}
		}
	}
	return t.read(b, op)
}

func (m *model) end(t *transaction, commit bool) ops.Result {
	if t.ended {
		return fail(berrors.ErrTxClosed)
	}
	if commit && !t.writable {
		return fail(berrors.ErrTxNotWritable)
	}
	t.ended = true
	if commit {
		m.committed = t.root
	}
	return ops.Result{}
}

// touch marks the buckets on path as changed.
func (t *transaction) touch(path []string) {
	t.root.find(path, func(n *node) { n.dirty = true })
}

func (t *transaction) changeBucket(b *node, op ops.Op) ops.Result {
	key := string(op.Key)
	e := b.entries[key]
	if !t.writable {
		return fail(berrors.ErrTxNotWritable)
	}
	if op.Kind == ops.DeleteBucket {
		switch {
		case e == nil:
			return fail(berrors.ErrBucketNotFound)
		case e.child == nil:
			return fail(berrors.ErrIncompatibleValue)
		}
		b.remove(key)
		t.touch(op.Path)
		clear(t.cursors)
		return ops.Result{}
	}
	switch {
	case key == "":
		return fail(berrors.ErrBucketNameRequired)
	case e != nil && e.child == nil:
		return fail(berrors.ErrIncompatibleValue)
	case e != nil && op.Kind == ops.CreateBucketIfNotExists:
		return ops.Result{}
	case e != nil:
		return fail(berrors.ErrBucketExists)
	case len(key) > maxKeySize:
		return fail(berrors.ErrKeyTooLarge)
	}
	b.set(key, &entry{child: newNode()})
	t.touch(op.Path)
	return ops.Result{}
}

func (t *transaction) moveBucket(b *node, op ops.Op) ops.Result {
	key := string(op.Key)
	dst := t.root.find(op.Dst, nil)
	if dst == nil {
		return ops.Result{Err: ops.NoBucket}
	}
	if !t.writable {
		return fail(berrors.ErrTxNotWritable)
	}
	e := b.entries[key]
	inside := append(slices.Clone(op.Path), key)
	switch {
	case e == nil:
		return fail(berrors.ErrBucketNotFound)
	case e.child == nil:
		return fail(berrors.ErrIncompatibleValue)
	case b == dst:
		return fail(berrors.ErrSameBuckets)
	}
	switch in := dst.entries[key]; {
	case in != nil && in.child != nil:
		return fail(berrors.ErrBucketExists)
	case in != nil:
		return fail(berrors.ErrIncompatibleValue)
	case len(op.Dst) >= len(inside) && slices.Equal(op.Dst[:len(inside)], inside):
		return fail(berrors.ErrSameBuckets)
	}
	b.remove(key)
	dst.set(key, e)
	t.touch(op.Path)
	t.touch(op.Dst)
	clear(t.cursors)
	return ops.Result{}
}

func (t *transaction) change(b *node, op ops.Op) ops.Result {
	key := string(op.Key)
	if !t.writable {
		return fail(berrors.ErrTxNotWritable)
	}
	e := b.entries[key]
	if op.Kind == ops.Delete {
		switch {
		case e == nil:
			return ops.Result{}
		case e.child != nil:
			return fail(berrors.ErrIncompatibleValue)
		}
		b.remove(key)
		t.touch(op.Path)
		return ops.Result{}
	}
	switch {
	case key == "":
		return fail(berrors.ErrKeyRequired)
	case len(key) > maxKeySize:
		return fail(berrors.ErrKeyTooLarge)
	case e != nil && e.child != nil:
		return fail(berrors.ErrIncompatibleValue)
	}
	b.set(key, &entry{value: append([]byte{}, op.Value...), nilPut: op.NilValue})
	t.touch(op.Path)
	return ops.Result{}
}

func (t *transaction) changeSequence(b *node, op ops.Op) ops.Result {
	if !t.writable {
		return fail(berrors.ErrTxNotWritable)
	}
	t.touch(op.Path)
	if op.Kind == ops.SetSequence {
		b.seq = op.N
		return ops.Result{}
	}
	b.seq++
	return ops.Result{N: b.seq}
}

func (t *transaction) read(b *node, op ops.Op) ops.Result {
	var r ops.Result
	switch op.Kind {
	case ops.Get:
		if e := b.entries[string(op.Key)]; e != nil && e.child == nil {
			r.Value, r.HasValue = e.value, true
		}
	case ops.Sequence:
		r.N = b.seq
	case ops.ForEach, ops.ForEachBucket:
		r.Value, r.N = b.top().ForEach(op.Kind == ops.ForEachBucket)
	case ops.Inspect:
		r.Value, r.N = b.content().Inspect()
	case ops.BucketStats:
		r.Value, r.N = b.content().Stats()
		r.HasValue = true
	case ops.NewCursor:
		t.cursors[op.Cursor] = &cursor{n: b, edits: b.edits}
	}
	return r
}

func (t *transaction) moveCursor(op ops.Op) ops.Result {
	c := t.cursors[op.Cursor]
	if op.Kind == ops.CursorDelete {
		return t.deleteAt(c)
	}
	keys := c.n.keys
	turns := op.Kind == ops.Next && c.moved == ops.Prev || op.Kind == ops.Prev && c.moved == ops.Next
	if !turns && (op.Kind == ops.Next || op.Kind == ops.Prev) {
		keys = c.older()
	} else {
		c.since = c.n.edits
	}
	c.moved = op.Kind
	i, found := 0, false
	if c.on {
		i, found = slices.BinarySearch(keys, c.key)
	} else {
		i = len(keys)
	}
	switch op.Kind {
	case ops.First:
		i = 0
	case ops.Last:
		i = len(keys) - 1
	case ops.Seek:
		i, _ = slices.BinarySearch(keys, string(op.Key))
	case ops.Next:
		if found {
			i++
		}
	case ops.Prev:
		i--
	}
	c.edits = c.n.edits
	if op.Kind != ops.Next && op.Kind != ops.Prev {
		c.placed, c.on = true, 0 <= i && i < len(keys)
	}
	if c.ended = i < 0 || i >= len(keys); c.ended {
		return ops.Result{}
	}
	c.key, c.on = keys[i], true
	e := c.n.entries[c.key]
	return ops.Result{Key: []byte(c.key), HasKey: true, Value: e.value, HasValue: e.child == nil}
}

// deleteAt removes what the cursor stands on. The path of the bucket is not
// known to the cursor; every bucket counts as changed.
func (t *transaction) deleteAt(c *cursor) ops.Result {
	if !t.writable {
		return fail(berrors.ErrTxNotWritable)
	}
	e := c.n.entries[c.key]
	switch {
	case !c.on || e == nil:
		return ops.Result{}
	case e.child != nil:
		return fail(berrors.ErrIncompatibleValue)
	}
	c.n.remove(c.key)
	t.root.eachBucket(func(n *node) { n.dirty = true })
	return ops.Result{}
}

func (n *node) eachBucket(fn func(*node)) {
	fn(n)
	for _, name := range n.buckets {
		n.entries[name].child.eachBucket(fn)
	}
}

// difference says in which way got is not want; "" if it is.
func difference(op ops.Op, want, got ops.Result, nilIsEmpty bool) string {
	switch {
	case want.Err != got.Err:
		return "error " + quote(got.Err) + ", want " + quote(want.Err)
	case want.Err != "":
		return ""
	case want.HasKey != got.HasKey || !bytes.Equal(want.Key, got.Key):
		return "key " + show(got.Key, got.HasKey) + ", want " + show(want.Key, want.HasKey)
	case !bytes.Equal(want.Value, got.Value):
		return "value " + show(got.Value, got.HasValue) + ", want " + show(want.Value, want.HasValue)
	case want.HasValue != got.HasValue && !nilIsEmpty:
		return "value " + show(got.Value, got.HasValue) + ", want " + show(want.Value, want.HasValue)
	case op.Kind != ops.Dump && want.N != got.N:
		return "another number"
	}
	return ""
}

func quote(s string) string {
	if s == "" {
		return "none"
	}
	return `"` + strings.TrimSpace(s) + `"`
}

func show(b []byte, present bool) string {
	switch {
	case !present && len(b) == 0:
		return "nil"
	case len(b) > 24:
		return fmt.Sprintf("%q.. of %d bytes", b[:24], len(b))
	}
	return fmt.Sprintf("%q", b)
}
