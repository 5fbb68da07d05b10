package tree

import (
	"bytes"
	"errors"
	"math"

	"holdfast/internal/page"
)

// ErrUnordered is returned by Builder.Append for a key that is not after the one
// before, and by Tree.Append for one that is not after all others.
var ErrUnordered = errors.New("keys are not in ascending order")

// Builder makes a new tree of elements that come in the order of their keys. Each page
// is allocated once, when its content is known, and not looked at again: of each level
// of the tree a few pages are in memory, however large it becomes. Pages are divided
// as Tree.Write divides a node to which all was appended.
//
// Keys and values are not copied: they must stay as they are until Finish. A Builder is
// for one goroutine. After an error it is of no use, and the pages that it allocated
// belong to no state: the transaction has to be rolled back.
type Builder struct {
	edit   *Edit
	w      Writer
	fill   float64
	levels []*node // leaves first: what was appended to each and is in no page yet
	cuts   []cut   // scratch
}

// batchPages is the number of pages that a level gathers before it is divided.
const batchPages = 16

// Begin makes b the builder of an empty tree, keeping its memory. Pages come from w and
// are filled to the share fill; for DefaultFill see Tree.Write. They are counted in edit,
// which also says whether they are sealed.
func (b *Builder) Begin(edit *Edit, w Writer, fill float64) {
	b.edit, b.w, b.fill = edit, w, fill
	b.levels = b.levels[:0]
	b.addLevel()
}

// addLevel adds an empty level on top.
func (b *Builder) addLevel() {
	l := len(b.levels)
	if l == cap(b.levels) || b.levels[:l+1][l] == nil {
		b.levels = append(b.levels, new(node))
	}
	b.levels = b.levels[:l+1]
	top := b.levels[l] // perhaps one of the tree before
	clear(top.items)
	*top = node{items: top.items[:0], leaf: l == 0, size: page.HeaderSize}
}

// Append adds an element after all others.
func (b *Builder) Append(key, value []byte, flags uint32) error {
	n := b.levels[0]
	if last := len(n.items) - 1; last >= 0 && bytes.Compare(n.items[last].key, key) >= 0 {
		return ErrUnordered
	}
	return b.add(0, item{key: key, value: value, flags: flags})
}

func (b *Builder) add(level int, it item) error {
	n := b.levels[level]
	if int64(n.size)+int64(len(it.key)+page.LeafElementSize)+int64(len(it.value)) > math.MaxInt {
		return ErrTooLarge
	}
	n.items = append(n.items, it)
	if n.size += itemSize(&it); n.size < batchPages*b.w.PageSize() {
		return nil
	}
	return b.divide(level, false)
}

// divide writes the pages of a level that whatever comes later does not change: all of
// them at the end. Before, not the last one, and none after which there are fewer elements
// than the splitter may look at: for a group of large values, or for one that the last
// page is to get from the one before.
func (b *Builder) divide(level int, end bool) error {
	n := b.levels[level]
	cuts := b.splitter().split(n, 0, b.cuts[:0])
	b.cuts = nil // the level above may divide meanwhile
	done := len(cuts)
	if !end {
		done--
		for done > 0 && len(n.items)-cuts[done-1].end < maxGroup {
			done--
		}
	}
	if done > 0 && level+1 == len(b.levels) {
		b.addLevel()
	}
	from := 0
	for _, c := range cuts[:done] {
		it, err := b.write(n.leaf, n.items[from:c.end], c.size, false)
		if err != nil {
			return err
		}
		if err := b.add(level+1, it); err != nil {
			return err
		}
		n.size -= c.size - page.HeaderSize
		from = c.end
	}
	if from > 0 {
		left := copy(n.items, n.items[from:])
		clear(n.items[left:])
		n.items = n.items[:left]
	}
	b.cuts = cuts
	return nil
}

func (b *Builder) splitter() splitter {
	return splitter{pageSize: b.w.PageSize(), fill: b.fill, append: true}
}

// write makes a page run of items, and gives the element for it in the level above.
func (b *Builder) write(leaf bool, items []item, size int, root bool) (item, error) {
	ps := b.w.PageSize()
	pages := max((size+ps-1)/ps, 1)
	id, buf, err := b.w.Allocate(uint64(pages), !leaf || root)
	if err != nil {
		return item{}, err
	}
	b.edit.Stats.Spills++
	b.edit.Stats.PagesFilled += int64(pages)
	if end := encode(buf, id, uint32(pages-1), leaf, items); !b.edit.Unsealed {
		b.w.Seal(end)
	}
	it := item{child: id}
	if len(items) > 0 {
		it.key = items[0].key
	}
	return it, nil
}

// InlineSize is the size of the page that the tree takes as an inline bucket. ok is
// false if it holds a bucket, or takes more than limit bytes.
func (b *Builder) InlineSize(limit int) (size int, ok bool) {
	if len(b.levels) > 1 {
		return 0, false
	}
	t := Tree{node: b.levels[0]}
	return t.InlineSize(limit)
}

// Inline encodes the tree as an inline page into buf, of InlineSize bytes, in place of
// Finish.
func (b *Builder) Inline(buf []byte) { encode(buf, 0, 0, true, b.levels[0].items) }

// Finish writes what is left and returns the root of the tree.
func (b *Builder) Finish() (page.ID, error) {
	for level := 0; ; level++ {
		if n := b.levels[level]; level+1 == len(b.levels) { // no page of it is written
			if b.cuts = b.splitter().split(n, 0, b.cuts[:0]); len(b.cuts) == 1 {
				it, err := b.write(n.leaf, n.items, n.size, true)
				return it.child, err
			}
		}
		if err := b.divide(level, true); err != nil {
			return 0, err
		}
	}
}

// Replace makes the tree the one at root, which was built, and gives up the pages that it
// has. The buckets that those hold, if any, are the caller's business.
func (t *Tree) Replace(root page.ID) error {
	err := t.Walk(func(l *Level) error {
		id, n := l.Base()
		if n == 0 {
			return nil
		}
		return t.edit.w.Free(id, n)
	})
	if err != nil {
		return err
	}
	t.root, t.node, t.inline = root, nil, page.Page{}
	t.edits++
	return nil
}
