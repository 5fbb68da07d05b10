package tree

import (
	"slices"

	"holdfast/internal/page"
)

// arena has the memory of one writing transaction's nodes: nodes, their items and changes,
// and copies of keys. It is used again by the next transaction, but for the keys, because a
// program may still hold one that it read.
type arena struct {
	nodes   blocks[node]
	items   blocks[item]
	changes blocks[change]
	keys    []byte
	held    int64 // see Edit.Held
	swept   bool  // memory is short, see Edit.Sweep
}

const (
	minKeyChunk = 64
	maxKeyChunk = 32 << 10

	// How many of each are kept between transactions: some 10 MiB in all.
	maxKeptNodes   = 1 << 14
	maxKeptItems   = 1 << 16
	maxKeptChanges = 1 << 15
	// The share of these, one in so many, that a transaction keeps which gives memory back.
	sweptShare = 4

	// The first piece of a node's memory.
	minItems   = 8
	minChanges = 2

	// By how many changes a node's memory grows where it lies, after which nothing lies yet.
	moreChanges = 8
)

// About what a node takes in memory, with the buffer of the page that it becomes, and an
// element that is put into one, besides key and value.
const (
	heldNode = 8 << 10
	heldItem = 120
)

func (a *arena) newNode(leaf bool) *node {
	a.held += heldNode
	n := &a.nodes.take(1)[:1][0]
	*n = node{arena: a, leaf: leaf, size: page.HeaderSize}
	return n
}

// room sees to it that there is room for more items. What was there stays as it is.
func (n *node) room(more int) {
	need := len(n.items) + more
	if need <= cap(n.items) {
		return
	}
	// A node that is made of a page may get some more, one that grows as many again.
	size := max(need+1+need/4, 2*cap(n.items), minItems)
	if n.arena == nil {
		n.items = slices.Grow(n.items, size-len(n.items))
		return
	}
	if more, ok := n.arena.items.extend(n.items, need+1+need/4); ok {
		n.items = more
		return
	}
	n.items = append(n.arena.items.take(size), n.items...)
}

// addChange puts c into the changes of a thin node.
func (n *node) addChange(at int, c change) {
	if count := len(n.changes); count == cap(n.changes) && n.arena != nil {
		if more, ok := n.arena.changes.extend(n.changes, count+moreChanges); ok {
			n.changes = more
		} else {
			n.changes = append(n.arena.changes.take(max(2*count, minChanges)), n.changes...)
		}
	}
	n.changes = slices.Insert(n.changes, at, c)
}

// dropItems gives the memory of the items of n, which is written, to the next node if it was
// taken last. So nodes that are made thick to be written do not add up.
func (n *node) dropItems() {
	if n.arena != nil && n.arena.items.giveBack(n.items) {
		n.items = nil
	}
}

func (a *arena) reset() {
	share := 1
	if a.swept {
		share = sweptShare
	}
	a.nodes.reset(maxKeptNodes / share)
	a.items.reset(maxKeptItems / share)
	a.changes.reset(maxKeptChanges / share)
	a.keys, a.held = nil, 0
}

// move gives a copy of n, and of all nodes below it, whose memory is a's. What was in the
// memory of n otherwise, keys and values, stays where it is.
func (a *arena) move(n *node) *node {
	c := a.newNode(n.leaf)
	items, changes := n.items, n.changes
	*c = *n
	c.items, c.changes = append(a.items.take(len(items)), items...), append(a.changes.take(len(changes)), changes...)
	c.arena = a
	for i := range c.items {
		if below := c.items[i].node; below != nil {
			c.items[i].node = a.move(below)
		}
	}
	for i := range c.changes {
		if below := c.changes[i].node; below != nil {
			c.changes[i].node = a.move(below)
		}
	}
	return c
}

func (a *arena) copyKey(key []byte) []byte {
	if len(key) > cap(a.keys)-len(a.keys) {
		size := min(max(2*cap(a.keys), minKeyChunk), maxKeyChunk)
		a.keys = make([]byte, 0, max(size, len(key)))
	}
	a.held += heldItem + 2*int64(len(key))
	at := len(a.keys)
	a.keys = append(a.keys, key...)
	return a.keys[at:len(a.keys):len(a.keys)]
}

// blocks hands out pieces of memory, which all go back at once. Blocks become longer as more
// is needed.
type blocks[T any] struct {
	list [][]T
	at   int // in which there is room
	used int // of it
}

const (
	minBlock = 16
	maxBlock = 4096
)

// take gives an empty slice with room for n, zero. One that is longer than a quarter of the
// longest block is not kept for the next transaction.
func (b *blocks[T]) take(n int) []T {
	if n > maxBlock/4 {
		return make([]T, 0, n)
	}
	for ; b.at < len(b.list); b.at, b.used = b.at+1, 0 {
		if block := b.list[b.at]; n <= len(block)-b.used {
			at := b.used
			b.used += n
			return block[at:at:b.used]
		}
	}
	size := minBlock
	if b.at > 0 {
		size = min(2*len(b.list[b.at-1]), maxBlock)
	}
	b.list = append(b.list, make([]T, max(size, n)))
	b.used = n
	return b.list[b.at][:0:n]
}

// extend gives a piece that was handed out last room for n where it lies. So a node that grows, and only then the
// next one, as when sorted keys are merged into a tree, leaves no memory behind.
func (b *blocks[T]) extend(piece []T, n int) ([]T, bool) {
	had := cap(piece)
	if had == 0 || b.at == len(b.list) || b.used < had {
		return nil, false
	}
	block := b.list[b.at]
	at := b.used - had
	if n > len(block)-at || &piece[:1][0] != &block[at] {
		return nil, false
	}
	b.used = at + n
	return block[at : at+len(piece) : b.used], true
}

// giveBack takes back a piece, if it was handed out last.
func (b *blocks[T]) giveBack(piece []T) bool {
	n := cap(piece)
	if n == 0 || b.at == len(b.list) || b.used < n || &piece[:1][0] != &b.list[b.at][b.used-n] {
		return false
	}
	b.used -= n
	clear(piece[:n])
	return true
}

// reset takes back all that was handed out, and keeps about so many of the longest blocks.
func (b *blocks[T]) reset(keep int) {
	for i := range b.list {
		switch {
		case i < b.at:
			clear(b.list[i])
		case i == b.at:
			clear(b.list[i][:b.used])
		}
	}
	from := len(b.list)
	for ; from > 0 && keep > 0; from-- {
		keep -= len(b.list[from-1])
	}
	if from > 0 {
		b.list = slices.Delete(b.list, 0, from)
	}
	b.at, b.used = 0, 0
}
