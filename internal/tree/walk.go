package tree

import (
	"errors"

	"holdfast/internal/page"
)

// Level is one page or node met by Walk.
type Level struct {
	place
	t     *Tree
	Depth int // 0 for the root
}

// IsLeaf tells a leaf from a branch.
func (l *Level) IsLeaf() bool { return l.leaf() }

// Inline tells whether the level is the page of an inline bucket as it is in
// the file.
func (l *Level) Inline() bool { return l.n == nil && l.p.ID() == 0 }

// Count is the number of elements.
func (l *Level) Count() int { return l.count() }

// Element is element i of a leaf. The value of one that is not a bucket is not to be
// used: it may be unverified.
func (l *Level) Element(i int) (page.Element, error) {
	l.t.lend()
	e, err := l.element(i)
	if err == nil && e.IsBucket() {
		err = l.t.verify(&l.place, i)
	}
	return e, err
}

// NextBucket is the first element of a leaf from i on that is a bucket, Count if there
// is none.
func (l *Level) NextBucket(i int) (int, error) {
	if l.n == nil {
		return l.p.NextBucket(i), nil
	}
	for n := l.count(); i < n; i++ {
		if e, err := l.n.element(i); err != nil || e.IsBucket() {
			return i, err
		}
	}
	return i, nil
}

// Key is the key of element i.
func (l *Level) Key(i int) ([]byte, error) {
	l.t.lend()
	return l.key(i)
}

// Size is how many bytes key and value of element i take, of a branch the key.
func (l *Level) Size(i int) (int, error) {
	if !l.leaf() {
		key, err := l.key(i)
		return len(key), err
	}
	e, err := l.element(i)
	return len(e.Key) + len(e.Value), err
}

// Base is the page run on disk that the level is, or replaces; n is 0 if there
// is none.
func (l *Level) Base() (id page.ID, n uint64) {
	if l.n != nil {
		return l.n.base, l.n.basePages
	}
	if id = l.p.ID(); id == 0 {
		return 0, 0
	}
	return id, l.p.Pages()
}

// Bytes is the size of the page run that the level is; -1 if it is in memory.
func (l *Level) Bytes() int {
	if l.n != nil {
		return -1
	}
	return len(l.p.Bytes())
}

// UsedBytes is the number of bytes that the level's content takes.
func (l *Level) UsedBytes() (int, error) {
	switch {
	case l.n == nil:
		return l.p.UsedBytes()
	case l.n.thin.Valid():
		used, err := l.n.thin.UsedBytes()
		return used + l.n.addedSize, err
	}
	return l.n.size, nil
}

// Walk visits all pages and nodes of the tree in key order, parents first. It
// stops at the first error. On a damaged file it may meet a page more than
// once; visit must notice if that matters.
func (t *Tree) Walk(visit func(*Level) error) error {
	pl, err := t.rootPlace()
	if err != nil {
		return err
	}
	return t.walk(&Level{place: pl, t: t}, visit)
}

// WalkFrom is Walk of the pages on the way to key, and of all after them.
func (t *Tree) WalkFrom(key []byte, visit func(*Level) error) error {
	pl, err := t.rootPlace()
	if err != nil {
		return err
	}
	return t.walkFrom(&Level{place: pl, t: t}, key, visit)
}

func (t *Tree) walkFrom(l *Level, key []byte, visit func(*Level) error) error {
	if err := visit(l); err != nil || l.leaf() {
		return err
	}
	if l.Depth == maxDepth {
		return l.corrupt(tooDeep)
	}
	first, err := l.descendIndex(key)
	if err != nil {
		return err
	}
	for i := first; i < l.count(); i++ {
		pl, err := t.child(&l.place, i)
		if err != nil {
			return err
		}
		below := &Level{place: pl, t: t, Depth: l.Depth + 1}
		if i == first {
			err = t.walkFrom(below, key, visit)
		} else {
			err = t.walk(below, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *Tree) walk(l *Level, visit func(*Level) error) error {
	if err := visit(l); err != nil || l.leaf() {
		return err
	}
	if l.Depth == maxDepth {
		return l.corrupt(tooDeep)
	}
	for i := 0; i < l.count(); i++ {
		pl, err := t.child(&l.place, i)
		if err != nil {
			return err
		}
		if err := t.walk(&Level{place: pl, t: t, Depth: l.Depth + 1}, visit); err != nil {
			return err
		}
	}
	return nil
}

// wideSample is how many pages IsWide looks at.
const wideSample = 256

var errSeen = errors.New("enough was seen")

// IsWide tells whether a leaf at the beginning of the tree is longer than a page though its elements are not: it was written with
// WideFill. It is false where the tree cannot be read.
func (t *Tree) IsWide() (wide bool) {
	seen := 0
	_ = t.Walk(func(l *Level) error {
		_, pages := l.Base()
		wide = l.IsLeaf() && pages > 1 && l.Count() > maxGroup
		if seen++; wide || seen == wideSample {
			return errSeen
		}
		return nil
	})
	return wide
}
