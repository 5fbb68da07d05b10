package blob

import (
	"encoding/binary"
	"errors"
	"math"
)

// A node is a chunk of the upper levels of a tree: a header and an entry for each
// child, in the order of the content. A full node with what stands around it fills
// a page of 4 KiB.
const (
	nodeHeaderSize = 16

	fixedMagic = "HFN1"
	cdcMagic   = "HFC1"

	fixedEntry = len(Address{})     // the address of the child
	cdcEntry   = len(Address{}) + 8 // and its size, with its level in the highest byte

	fixedFanout = 126
	cdcFanout   = 100

	maxNodeSize = nodeHeaderSize + fixedFanout*fixedEntry
)

// shape is what the options of a store say of its trees.
type shape struct {
	leafSize int64
	cdc      bool
}

func (o *Options) shape() shape {
	return shape{leafSize: int64(o.LeafSize), cdc: o.Chunking == FastCDC}
}

// fanout is the largest number of children of a node.
func (sh shape) fanout() int {
	if sh.cdc {
		return cdcFanout
	}
	return fixedFanout
}

// maxLeaf is the length of the longest leaf.
func (sh shape) maxLeaf() int64 {
	if sh.cdc {
		return maxSpread * sh.leafSize
	}
	return sh.leafSize
}

// full is how much content a tree of the level has at most.
func (sh shape) full(level uint8) int64 {
	size := sh.maxLeaf()
	for ; level > 0; level-- {
		if size > math.MaxInt64/int64(sh.fanout()) {
			return math.MaxInt64
		}
		size *= int64(sh.fanout())
	}
	return size
}

// level is how high a tree of fixed leaves with that much content is.
func (sh shape) level(size int64) uint8 {
	level := uint8(0)
	for sh.full(level) < size {
		level++
	}
	return level
}

// checkSize is the error of a tree of the level that is said to have that much content.
func (sh shape) checkSize(size int64, level uint8) error {
	switch {
	case sh.cdc && size <= sh.full(level) && (level == 0 || size > 1), !sh.cdc && sh.level(size) == level:
		return nil
	}
	return corruptf("no tree of level %d has %d bytes", level, size)
}

// node is a decoded node. Its children are in the bytes, which it keeps.
type node struct {
	shape
	children []byte
	stride   int64 // content below each child but the last; 0 if cut by content
	size     int64 // content below
	level    uint8
}

// parseNode decodes a node that should be of the level. All that can be known
// without its children is checked.
func parseNode(b []byte, level uint8, sh shape) (node, error) {
	magic, entry := fixedMagic, fixedEntry
	if sh.cdc {
		magic, entry = cdcMagic, cdcEntry
	}
	if len(b) < nodeHeaderSize || string(b[:4]) != magic {
		return node{}, corruptf("not a node of this store")
	}
	count, size := int(binary.LittleEndian.Uint16(b[6:])), binary.LittleEndian.Uint64(b[8:])
	switch {
	case b[4] != level || level == 0 || level > maxLevel:
		return node{}, corruptf("node of level %d where one of level %d should be", b[4], level)
	case b[5] != 0:
		return node{}, corruptf("node: a reserved byte is set")
	case count < 2 || count > sh.fanout():
		return node{}, corruptf("node of %d children", count)
	case len(b) != nodeHeaderSize+count*entry:
		return node{}, corruptf("node of %d children in %d bytes", count, len(b))
	case size > math.MaxInt64:
		return node{}, corruptf("node of %d bytes", size)
	}
	n := node{shape: sh, children: b[nodeHeaderSize:], size: int64(size), level: level}
	if sh.cdc {
		return n, n.checkChildren()
	}
	if err := sh.checkSize(n.size, level); err != nil {
		return node{}, err
	}
	n.stride = sh.full(level - 1)
	if want := (n.size-1)/n.stride + 1; want != int64(count) {
		return node{}, corruptf("node of %d bytes with %d children, not %d", size, count, want)
	}
	return n, nil
}

// checkChildren checks what a node of content-defined leaves says of its children.
func (n *node) checkChildren() error {
	sum := int64(0)
	for i := range n.count() {
		size, level := n.cdcChild(i)
		switch {
		case level >= n.level || level != n.level-1 && i < n.count()-1:
			return corruptf("node of level %d with a child of level %d", n.level, level)
		case size == 0 || size > math.MaxInt64-sum:
			return corruptf("node with a child of %d bytes", size)
		case size > n.full(level):
			return corruptf("node with a child of level %d and %d bytes", level, size)
		}
		sum += size
	}
	if sum != n.size {
		return corruptf("node of %d bytes whose children have %d", n.size, sum)
	}
	return nil
}

// count is the number of children.
func (n *node) count() int {
	if n.cdc {
		return len(n.children) / cdcEntry
	}
	return len(n.children) / fixedEntry
}

func (n *node) cdcChild(i int) (size int64, level uint8) {
	v := binary.LittleEndian.Uint64(n.children[i*cdcEntry+len(Address{}):])
	return int64(v & (1<<56 - 1)), uint8(v >> 56)
}

// child is child i and how much content is below it.
func (n *node) child(i int) (k chunkKey, size int64) {
	if n.cdc {
		copy(k.addr[:], n.children[i*cdcEntry:])
		size, k.level = n.cdcChild(i)
		return k, size
	}
	copy(k.addr[:], n.children[i*fixedEntry:])
	k.level, size = n.level-1, n.stride
	if i == n.count()-1 { // the rest may be a tree that is less high
		size = n.size - int64(i)*n.stride
		k.level = n.shape.level(size)
	}
	return k, size
}

// find is the child that holds the byte at offset, which is below n.size, and where
// the child's content begins.
func (n *node) find(offset int64) (i int, begin int64) {
	if !n.cdc {
		i = int(offset / n.stride)
		return i, int64(i) * n.stride
	}
	for {
		size, _ := n.cdcChild(i)
		if offset < begin+size {
			return i, begin
		}
		begin += size
		i++
	}
}

// nodeBuilder gathers the children of a node that is being made.
type nodeBuilder struct {
	b    []byte // header, children
	n    int
	size int64
}

var errTooLarge = errors.New("larger than any blob can be")

// add appends a child.
func (nb *nodeBuilder) add(sh shape, k *chunkKey, size int64) error {
	if size > math.MaxInt64-nb.size {
		return errTooLarge
	}
	if nb.b == nil {
		nb.b = make([]byte, nodeHeaderSize, maxNodeSize)
	}
	nb.b = append(nb.b, k.addr[:]...)
	if sh.cdc {
		if size >= 1<<56 {
			return errTooLarge
		}
		nb.b = binary.LittleEndian.AppendUint64(nb.b, uint64(size)|uint64(k.level)<<56)
	}
	nb.n++
	nb.size += size
	return nil
}

// finish gives the bytes of the node, which are valid until reset.
func (nb *nodeBuilder) finish(sh shape, level uint8) []byte {
	magic := fixedMagic
	if sh.cdc {
		magic = cdcMagic
	}
	copy(nb.b, magic)
	nb.b[4], nb.b[5] = level, 0
	binary.LittleEndian.PutUint16(nb.b[6:], uint16(nb.n))
	binary.LittleEndian.PutUint64(nb.b[8:], uint64(nb.size))
	return nb.b
}

func (nb *nodeBuilder) reset() {
	if nb.b != nil {
		nb.b = nb.b[:nodeHeaderSize]
	}
	nb.n, nb.size = 0, 0
}

// child is child i; all have the same level until finish has joined the rest.
func (nb *nodeBuilder) child(sh shape, i int, level uint8) (k chunkKey) {
	entry := fixedEntry
	if sh.cdc {
		entry = cdcEntry
	}
	copy(k.addr[:], nb.b[nodeHeaderSize+i*entry:])
	k.level = level
	return k
}
