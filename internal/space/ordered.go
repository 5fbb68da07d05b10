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

// block has up to blockSize keys and their values.
type block[V any] struct {
	keys []uint64
	vals []V
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
	return o.next(at)
}

// next is the place after another.
func (o *ordered[V]) next(at place) (place, bool) {
	if at.index++; at.index == len(o.blocks[at.block].keys) {
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
	if o.size == 0 {
		return 0, false
	}
	return o.blocks[0].keys[0], true
}

// blockFor is the only block in which key can be: the last that does not begin
// above it.
func (o *ordered[V]) blockFor(key uint64) int {
	n := len(o.blocks)
	if n == 1 || key >= o.blocks[n-1].keys[0] {
		return n - 1 // ascending use ends here at once
	}
	return max(0, sort.Search(n, func(i int) bool { return o.blocks[i].keys[0] > key })-1)
}

// search is the index of the first key at or above key, and whether it is key.
// (slices.BinarySearch compares through a dictionary.)
func (b *block[V]) search(key uint64) (int, bool) {
	keys := b.keys
	lo, hi := 0, len(keys)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); keys[mid] < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(keys) && keys[lo] == key
}

// insert adds a key that is not in the map.
func (o *ordered[V]) insert(key uint64, val V) {
	at := o.blockFor(key)
	b := o.blocks[at]
	if len(b.keys) == blockSize {
		o.split(at, key)
		at = o.blockFor(key)
		b = o.blocks[at]
	}
	i, _ := b.search(key)
	b.keys = slices.Insert(b.keys, i, key)
	b.vals = slices.Insert(b.vals, i, val)
	o.size++
}

// split makes room in a full block. The last block is not halved when the map
// grows at its end: then its blocks stay full.
func (o *ordered[V]) split(at int, key uint64) {
	b := o.blocks[at]
	keep := blockSize / 2
	if at == len(o.blocks)-1 && key > b.keys[blockSize-1] {
		keep = blockSize - 1
	}
	right := &block[V]{
		keys: append(make([]uint64, 0, blockSize), b.keys[keep:]...),
		vals: append(make([]V, 0, blockSize), b.vals[keep:]...),
	}
	b.truncate(keep)
	o.blocks = slices.Insert(o.blocks, at+1, right)
}

// truncate forgets all but the first n entries.
func (b *block[V]) truncate(n int) {
	clear(b.vals[n:])
	b.keys, b.vals = b.keys[:n], b.vals[:n]
}

// remove deletes the entry at a place.
func (o *ordered[V]) remove(at place) {
	b := o.blocks[at.block]
	b.keys = slices.Delete(b.keys, at.index, at.index+1)
	b.vals = slices.Delete(b.vals, at.index, at.index+1)
	o.size--
	o.tidy(at.block)
}

// filter deletes the entries of one block that keep does not want.
func (o *ordered[V]) filter(at int, keep func(key uint64, val *V) bool) {
	b, n := o.blocks[at], 0
	for i := range b.keys {
		if keep(b.keys[i], &b.vals[i]) {
			b.keys[n], b.vals[n] = b.keys[i], b.vals[i]
			n++
		}
	}
	o.size -= len(b.keys) - n
	b.truncate(n)
	o.tidy(at)
}

// tidy joins a block that has become small with the one after it (or before
// it, for the last), so that memory follows the number of entries.
func (o *ordered[V]) tidy(at int) {
	if len(o.blocks) == 1 || len(o.blocks[at].keys) > blockSize/4 {
		return
	}
	left := min(at, len(o.blocks)-2)
	a, b := o.blocks[left], o.blocks[left+1]
	if len(a.keys)+len(b.keys) > blockSize*3/4 && len(a.keys) > 0 && len(b.keys) > 0 {
		return
	}
	a.keys = append(a.keys, b.keys...)
	a.vals = append(a.vals, b.vals...)
	o.blocks = slices.Delete(o.blocks, left+1, left+2)
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
