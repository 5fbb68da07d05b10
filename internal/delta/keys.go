package delta

import (
	"bytes"
	"context"
	"slices"

	"holdfast/internal/page"
)

// Kind says what has become of a key.
type Kind uint8

// The kinds.
const (
	Added Kind = iota
	Changed
	Removed
)

// Change is a key that differs between two states, or a bucket that only one has, or one whose sequence differs. What was
// a key and is a bucket is removed and added; so is a bucket that was moved, with all that is in it.
type Change struct {
	Kind   Kind
	Path   [][]byte // of the bucket in which it is, from the top
	Key    []byte   // or the name of a bucket
	Bucket bool     // it is a bucket; if it is Changed, its sequence is

	OldBytes, NewBytes int    // lengths of the values; of buckets 0
	Old, New           []byte // the values, if they were asked for

	OldSequence, NewSequence uint64 // of a bucket that is Changed
}

// Keys calls visit with each change from one state to the other: by bucket, in the order of keys, and those in a bucket after the bucket.
// values says that visit wants the values; without it, only those are read that have to be compared. What a Change
// refers to is valid until visit returns. Errors are those of Compare, and that of visit, which ends it.
func Keys(ctx context.Context, before, after State, values bool, visit func(*Change) error) error {
	k := &keys{budget: newBudget(ctx, before, after), values: values, visit: visit}
	return k.trees(content{root: before.Root}, content{root: after.Root})
}

type keys struct {
	*budget
	values bool
	visit  func(*Change) error
	path   [][]byte
}

// content is what a bucket holds: a tree, or one page in the value of its parent. The zero content is none.
type content struct {
	root   page.ID
	inline page.Page
}

// trees reports what differs between two buckets at k.path.
func (k *keys) trees(before, after content) error {
	if len(k.path) > maxNesting {
		return page.Corruptf(max(before.root, after.root), "buckets are nested more than %d deep", maxNesting)
	}
	a := stream{keys: k, side: Before, p: before.inline}
	b := stream{keys: k, side: After, p: after.inline}
	if err := k.leaves(before.root, after.root, &a, &b); err != nil {
		return err
	}
	if err := a.begin(); err != nil {
		return err
	}
	if err := b.begin(); err != nil {
		return err
	}
	for !a.end || !b.end {
		if err := k.next(&a, &b); err != nil {
			return err
		}
	}
	return nil
}

// leaves gives the streams the leaves of two trees that only one of them has. What is in others is the same in both.
func (k *keys) leaves(before, after page.ID, a, b *stream) error {
	if before == 0 && after == 0 {
		return nil
	}
	w := newWalk(k.budget)
	w.leaves = func(side Side, p page.Page) error {
		s := a
		if side == After {
			s = b
		}
		s.leaves = append(s.leaves, p.ID())
		return nil
	}
	if err := w.run(before, after); err != nil {
		return err
	}
	for _, s := range []*stream{a, b} { // one that was expanded may have been found in the other tree since
		s.leaves = slices.DeleteFunc(s.leaves, func(id page.ID) bool { return w.pages[id].in != s.side.bit() })
	}
	return nil
}

// next reports the least key of two streams.
func (k *keys) next(a, b *stream) error {
	order := 0
	switch {
	case a.end:
		order = 1
	case b.end:
		order = -1
	default:
		order = bytes.Compare(a.key, b.key)
	}
	var err error
	switch {
	case order < 0:
		err = k.only(a)
	case order > 0:
		err = k.only(b)
	case a.bucket() != b.bucket():
		if err = k.only(a); err == nil {
			err = k.only(b)
		}
	case a.bucket():
		err = k.buckets(a, b)
	default:
		err = k.both(a, b)
	}
	if err == nil && order <= 0 {
		err = a.next()
	}
	if err == nil && order >= 0 {
		err = b.next()
	}
	return err
}

// only reports what only one side has, with all that is in it if it is a bucket.
func (k *keys) only(s *stream) error {
	c := &Change{Kind: Removed, Path: k.path, Key: s.key, Bucket: s.bucket()}
	if s.side == After {
		c.Kind = Added
	}
	if !c.Bucket {
		value, err := s.value(k.values)
		if err != nil {
			return err
		}
		if s.side == After {
			c.New, c.NewBytes = value, s.length()
		} else {
			c.Old, c.OldBytes = value, s.length()
		}
		return k.visit(c)
	}
	if err := k.visit(c); err != nil {
		return err
	}
	_, in, err := s.content()
	if err != nil {
		return err
	}
	if s.side == After {
		return k.inside(s.key, content{}, in)
	}
	return k.inside(s.key, in, content{})
}

// inside is trees of two buckets at k.path with that name.
func (k *keys) inside(name []byte, before, after content) error {
	k.path = append(k.path, name)
	err := k.trees(before, after)
	k.path = k.path[:len(k.path)-1]
	return err
}

// both reports a key that both sides have, if its value differs.
func (k *keys) both(a, b *stream) error {
	differ := a.length() != b.length()
	old, err := a.value(k.values || !differ)
	if err != nil {
		return err
	}
	value, err := b.value(k.values || !differ)
	if err != nil {
		return err
	}
	if !differ && bytes.Equal(old, value) {
		return nil
	}
	c := &Change{Kind: Changed, Path: k.path, Key: a.key, OldBytes: a.length(), NewBytes: b.length()}
	if k.values {
		c.Old, c.New = old, value
	}
	return k.visit(c)
}

// buckets compares two buckets with the same name.
func (k *keys) buckets(a, b *stream) error {
	old, before, err := a.content()
	if err != nil {
		return err
	}
	now, after, err := b.content()
	if err != nil {
		return err
	}
	if old.Sequence != now.Sequence {
		err := k.visit(&Change{Kind: Changed, Path: k.path, Key: a.key, Bucket: true, OldSequence: old.Sequence, NewSequence: now.Sequence})
		if err != nil {
			return err
		}
	}
	if old.Root == now.Root && (old.Root != 0 || bytes.Equal(before.inline.Bytes(), after.inline.Bytes())) {
		return nil
	}
	return k.inside(a.key, before, after)
}
