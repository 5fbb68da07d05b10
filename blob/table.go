package blob

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// pending is a chunk whose entry in the index is to be written or changed.
type pending struct {
	key    chunkKey
	state  pendingState
	length int32
	at     int32  // where its bytes are in the arena, or its frame in that of frames
	leased int32  // see below
	stored int32  // bytes of its frame; 0: it is none
	id     uint64 // once it has one

	// What is to be added to the counts, and to leased; from its settling on, these.
	parents, users int64
}

// size is how many bytes are, or will be, stored of it.
func (p *pending) size() int {
	if p.stored > 0 {
		return int(p.stored)
	}
	return int(p.length)
}

type pendingState uint16

const (
	hasBytes  pendingState = 1 << iota // its bytes came with it, else they are in the store
	appended                           // they are in a bucket already, under id
	packed                             // which is, or will be, the one of short chunks
	stored                             // settled: the index has it
	wasDead                            // settled: the index had it as unused
	unchanged                          // settled: nothing to do
	inLarge                            // settled: the index has it in the large bucket
	inRecent                           // and in the small one
	claimed                            // a stored node names it
	counted                            // only counts came of it so far: whether its bytes are lost was not looked at
)

// table finds pending chunks by their keys: open addressing with linear probing. An
// entry stays where it is, so they are in the order of their arrival.
type table struct {
	entries []pending
	slots   []int32 // index+1 in entries, 0: free; a power of two, at most half full
	scratch []order
	counts  []int32
}

const minSlots = 256

// tableSeed makes it unknown which addresses share a slot.
var tableSeed = rand.Uint64() | 1

func (t *table) slot(k *chunkKey) int {
	h := (binary.LittleEndian.Uint64(k.addr[:]) ^ uint64(k.level)) * tableSeed
	return int(h >> (64 - bits.Len(uint(len(t.slots)-1))))
}

// find gives the entry of k; nil if there is none. It is valid until the next insert.
func (t *table) find(k *chunkKey) *pending {
	if len(t.entries) == 0 {
		return nil
	}
	for i := t.slot(k); ; i = (i + 1) & (len(t.slots) - 1) {
		switch at := t.slots[i]; {
		case at == 0:
			return nil
		case t.entries[at-1].key == *k:
			return &t.entries[at-1]
		}
	}
}

// insert makes an entry for k, which has none.
func (t *table) insert(k *chunkKey) *pending {
	if 2*(len(t.entries)+1) > len(t.slots) {
		t.grow()
	}
	t.entries = append(t.entries, pending{key: *k})
	t.place(k, int32(len(t.entries)))
	return &t.entries[len(t.entries)-1]
}

func (t *table) place(k *chunkKey, at int32) {
	i := t.slot(k)
	for t.slots[i] != 0 {
		i = (i + 1) & (len(t.slots) - 1)
	}
	t.slots[i] = at
}

func (t *table) grow() {
	size := max(2*len(t.slots), minSlots)
	if size <= cap(t.slots) {
		t.slots = t.slots[:size]
		clear(t.slots)
	} else {
		t.slots = make([]int32, size)
	}
	t.entries = slices.Grow(t.entries, size/2-len(t.entries))
	for i := range t.entries {
		t.place(&t.entries[i].key, int32(i+1))
	}
}

// reset forgets all entries, and keeps the memory unless it has become unusually large.
func (t *table) reset() {
	if cap(t.entries) > 2*maxPending {
		*t = table{}
		return
	}
	t.entries, t.slots = t.entries[:0], t.slots[:0]
}

// order is the place of an entry in an order of keys.
type order struct {
	prefix uint64 // of the address
	at     int32
}

// sorted gives those entries of the table whose level is at least low and at most
// high in the order of their keys. It is valid until the next call.
func (t *table) sorted(low, high uint8) []order { return t.sortedFrom(0, low, high) }

// sortedFrom is sorted for the entries from index from on.
func (t *table) sortedFrom(from int, low, high uint8) []order {
	t.scratch = t.scratch[:0]
	for i := from; i < len(t.entries); i++ {
		if e := &t.entries[i]; e.key.level >= low && e.key.level <= high {
			t.scratch = append(t.scratch, order{binary.BigEndian.Uint64(e.key.addr[:]), int32(i)})
		}
	}
	n := len(t.scratch)
	if n < 64 {
		t.sort(t.scratch)
		return t.scratch
	}
	// Addresses are spread evenly: by their first bits they fall into groups of a few,
	// in one pass.
	t.scratch = slices.Grow(t.scratch, n)
	unsorted, to := t.scratch, t.scratch[n:2*n]
	width := bits.Len(uint(n)) - 1
	groups := 1 << width
	if cap(t.counts) < groups {
		t.counts = make([]int32, groups)
	}
	begins := t.counts[:groups]
	clear(begins)
	for i := range unsorted {
		begins[unsorted[i].prefix>>(64-width)]++
	}
	sum := int32(0)
	for i, c := range begins {
		begins[i], sum = sum, sum+c
	}
	for i := range unsorted {
		g := unsorted[i].prefix >> (64 - width)
		to[begins[g]] = unsorted[i]
		begins[g]++
	}
	last := int32(0)
	for _, end := range begins {
		if end-last > 1 {
			t.sort(to[last:end])
		}
		last = end
	}
	return to
}

func (t *table) sort(list []order) {
	compare := func(a, b order) int {
		if a.prefix != b.prefix {
			return cmp.Compare(a.prefix, b.prefix)
		}
		return t.entries[a.at].key.compare(&t.entries[b.at].key)
	}
	if len(list) > 12 {
		slices.SortFunc(list, compare)
		return
	}
	for i := 1; i < len(list); i++ {
		for j := i; j > 0 && compare(list[j-1], list[j]) > 0; j-- {
			list[j-1], list[j] = list[j], list[j-1]
		}
	}
}
