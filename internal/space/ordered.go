package space

import (
	"slices"
	"sort"
)

// ordered is a map with keys in order. It is a list of sorted blocks: finding a
// key is two binary searches, and inserting or removing one moves at most one
// block's worth of memory. It serves for three keys (which cost one block) as
// well as for a million.
//
// Invariants: there is at least one block; no block is empty unless it is the
// only one; keys ascend within and across blocks.
type ordered[V any] struct {
	blocks []*block[V]
	size   int
}

const blockSize = 128

type block[V any] struct {
	n    int
	keys [blockSize]uint64
	vals [blockSize]V
}

// A place names an entry until the map is changed.
type place struct{ block, index int }

func (o *ordered[V]) init() {
	o.blocks = []*block[V]{new(block[V])}
	o.size = 0
}

// floor is the place of the largest key that is not above key.
func (o *ordered[V]) floor(key uint64) (place, bool) {
	b := o.blockFor(key)
	i, found := o.blocks[b].search(key)
	if !found {
		i--
	}
	return place{b, i}, i >= 0
}

// find is the place of key.
func (o *ordered[V]) find(key uint64) (place, bool) {
	at, ok := o.floor(key)
	return at, ok && o.key(at) == key
}

// after is the place of the smallest key above key.
func (o *ordered[V]) after(key uint64) (place, bool) {
	at, ok := o.floor(key)
	if !ok {
		return place{}, o.size > 0
	}
	at.index++
	if at.index == o.blocks[at.block].n {
		at = place{block: at.block + 1}
	}
	return at, at.block < len(o.blocks)
}

func (o *ordered[V]) key(at place) uint64 { return o.blocks[at.block].keys[at.index] }
func (o *ordered[V]) val(at place) *V     { return &o.blocks[at.block].vals[at.index] }

// rekey gives the entry at a place another key that does not change its order.
func (o *ordered[V]) rekey(at place, key uint64) { o.blocks[at.block].keys[at.index] = key }

// first is the smallest key.
func (o *ordered[V]) first() (uint64, bool) {
	return o.blocks[0].keys[0], o.size > 0
}

// blockFor is the only block in which key can be: the last that does not begin
// above it.
func (o *ordered[V]) blockFor(key uint64) int {
	n := len(o.blocks)
	if key >= o.blocks[n-1].keys[0] {
		return n - 1 // ascending use ends here at once
	}
	return max(0, sort.Search(n, func(i int) bool { return o.blocks[i].keys[0] > key })-1)
}

// search is the index of the first key at or above key, and whether it is key.
func (b *block[V]) search(key uint64) (int, bool) {
	return slices.BinarySearch(b.keys[:b.n], key)
}

// insert adds a key that is not in the map.
func (o *ordered[V]) insert(key uint64, val V) {
	at := o.blockFor(key)
	b := o.blocks[at]
	if b.n == blockSize {
		o.split(at, key)
		at = o.blockFor(key)
		b = o.blocks[at]
	}
	i, _ := b.search(key)
	copy(b.keys[i+1:b.n+1], b.keys[i:b.n])
	copy(b.vals[i+1:b.n+1], b.vals[i:b.n])
	b.keys[i], b.vals[i] = key, val
	b.n++
	o.size++
}

// split makes room in a full block. The last block is not halved when the map
// grows at its end: then its blocks stay full.
func (o *ordered[V]) split(at int, key uint64) {
	b, right := o.blocks[at], new(block[V])
	keep := blockSize / 2
	if at == len(o.blocks)-1 && key > b.keys[blockSize-1] {
		keep = blockSize - 1
	}
	right.n = blockSize - keep
	copy(right.keys[:], b.keys[keep:])
	copy(right.vals[:], b.vals[keep:])
	b.truncate(keep)
	o.blocks = append(o.blocks, nil)
	copy(o.blocks[at+2:], o.blocks[at+1:])
	o.blocks[at+1] = right
}

// truncate forgets all but the first n entries.
func (b *block[V]) truncate(n int) {
	clear(b.vals[n:b.n])
	b.n = n
}

// remove deletes the entry at a place.
func (o *ordered[V]) remove(at place) {
	b := o.blocks[at.block]
	copy(b.keys[at.index:], b.keys[at.index+1:b.n])
	copy(b.vals[at.index:], b.vals[at.index+1:b.n])
	b.truncate(b.n - 1)
	o.size--
	o.tidy(at.block)
}

// filter deletes the entries of one block that keep does not want.
func (o *ordered[V]) filter(at int, keep func(key uint64, val *V) bool) {
	b, n := o.blocks[at], 0
	for i := range b.n {
		if keep(b.keys[i], &b.vals[i]) {
			b.keys[n], b.vals[n] = b.keys[i], b.vals[i]
			n++
		}
	}
	o.size -= b.n - n
	b.truncate(n)
	o.tidy(at)
}

// tidy joins a block that has become small with the one behind it (or before
// it, for the last), so that memory follows the number of entries.
func (o *ordered[V]) tidy(at int) {
	if o.blocks[at].n > blockSize/4 || len(o.blocks) == 1 {
		return
	}
	left := min(at, len(o.blocks)-2)
	a, b := o.blocks[left], o.blocks[left+1]
	if a.n+b.n > blockSize*3/4 && a.n > 0 && b.n > 0 {
		return
	}
	copy(a.keys[a.n:], b.keys[:b.n])
	copy(a.vals[a.n:], b.vals[:b.n])
	a.n += b.n
	copy(o.blocks[left+1:], o.blocks[left+2:])
	last := len(o.blocks) - 1
	o.blocks[last] = nil
	o.blocks = o.blocks[:last]
}

// clear deletes every entry and keeps one block.
func (o *ordered[V]) clear() {
	if len(o.blocks) > 1 {
		o.init()
		return
	}
	o.blocks[0].truncate(0)
	o.size = 0
}
