package tree

import (
	"bytes"

	"holdfast/internal/page"
)

// Delete removes key and tells whether it was there.
func (t *Tree) Delete(key []byte) (found bool, err error) {
	r, err := t.delete(key, 0)
	return r == removed, err
}

// DeleteValue is Delete of a key without flags. If key has some, that is, if it
// is a bucket, nothing changes and ok is false.
func (t *Tree) DeleteValue(key []byte) (ok bool, err error) {
	r, err := t.delete(key, ^uint32(0))
	return r != refused, err
}

// What became of a key that was to be deleted.
type deletion int

const (
	absent deletion = iota
	refused
	removed
)

// delete removes key unless it has one of the flags in refuse.
func (t *Tree) delete(key []byte, refuse uint32) (deletion, error) {
	_, flags, ok, err := t.lookup(key, false)
	if err != nil || !ok {
		return absent, err
	}
	if flags&refuse != 0 {
		return refused, nil
	}
	i, _, known := t.recall(key)
	n, err := t.editLeaf(key)
	if err != nil {
		return absent, err
	}
	if err := n.thicken(); err != nil {
		return absent, err
	}
	if !known || i >= len(n.items) || !bytes.Equal(n.items[i].key, key) {
		var exact bool
		if i, exact = n.search(key); !exact {
			return absent, page.Corruptf(n.base, "key is found by one search and not by the next")
		}
	}
	_, err = t.remove(n, i)
	return removed, err
}

// removal is what is remembered of the last element that was removed: if the same key is put
// next, it is as old as before, see Cursor.
type removal struct {
	key  []byte // a copy
	born uint64
	some bool
}

// bornNow is item.born of an element that is put now.
func (t *Tree) bornNow(key []byte) page.ID {
	if r := &t.work.removed; r.some && bytes.Equal(r.key, key) {
		return page.ID(r.born)
	}
	return page.ID(t.edits + 1)
}

// remove takes element i out of n, a leaf on which the finger may stand. An empty leaf goes at
// once: a caller that empties a tree from its beginning would pass it again and again. moved says that
// the leaf does not exist any more, or that some of its elements are in other leaves now.
func (t *Tree) remove(n *node, i int) (moved bool, err error) {
	it := &n.items[i]
	key := it.key
	t.work.removed = removal{key: append(t.work.removed.key[:0], key...), born: it.born(), some: true}
	t.edits++
	t.stay(n)
	shift := n.remove(i)
	n.shrunk = true
	t.edit.moved += shift
	switch {
	case len(n.items) == 0 && n != t.node:
		return true, t.dropEmpty(n, key)
	case shift > maxNodeItems:
		return true, t.splitAround(key)
	}
	return false, nil
}

// dropEmpty takes n, a leaf to which key belongs, which is empty and not the root, off the tree,
// and the branches that are empty then.
func (t *Tree) dropEmpty(n *node, key []byte) error {
	var path nodePath
	if err := t.pathTo(key, &path); err != nil {
		return err
	}
	if path.node[path.depth] != n {
		return page.Corruptf(n.base, "a key is not in the leaf to which it belongs")
	}
	for d := path.depth; d > 0; d-- {
		if err := t.freeBase(path.node[d]); err != nil {
			return err
		}
		parent := path.node[d-1]
		if err := parent.thicken(); err != nil {
			return err
		}
		parent.remove(path.index[d-1])
		if parent.shrunk = true; len(parent.items) > 0 {
			return nil
		}
	}
	if err := t.freeBase(t.node); err != nil {
		return err
	}
	t.node = t.edit.arena.newNode(true)
	return nil
}
