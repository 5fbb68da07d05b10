package blob

import (
	"encoding/binary"
	"math/bits"
	"sync"
)

// nodeCache keeps decoded nodes of one blob. It is bounded: of nodes that share a place
// it keeps the last. Several goroutines may use it at once.
type nodeCache struct {
	mu    sync.Mutex
	slots []cachedNode // a power of two
	puts  int
}

type cachedNode struct {
	key  chunkKey
	node node // of level 0: none
}

// maxCachedNodes bounds the cache: with 512 nodes of the lowest level it covers 4 GiB of
// a blob whose leaves have the default size.
const maxCachedNodes = 512

func (c *nodeCache) slot(k *chunkKey) *cachedNode {
	return &c.slots[int(binary.LittleEndian.Uint16(k.addr[:]))&(len(c.slots)-1)]
}

func (c *nodeCache) get(k *chunkKey) (node, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slots == nil {
		return node{}, false
	}
	s := c.slot(k)
	return s.node, s.node.level > 0 && s.key == *k
}

// put remembers a node of a blob that has some count nodes. The cache begins small, for readers of one piece.
func (c *nodeCache) put(k *chunkKey, n *node, count int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.puts++; c.puts > len(c.slots) && len(c.slots) < c.limit(count) {
		old := c.slots
		c.slots = make([]cachedNode, max(4, 4*len(old)))
		for i := range old {
			if old[i].node.level > 0 {
				*c.slot(&old[i].key) = old[i]
			}
		}
	}
	*c.slot(k) = cachedNode{*k, *n}
}

// limit is how many slots a blob that has some count nodes is worth.
func (c *nodeCache) limit(count int64) int {
	return 1 << bits.Len64(uint64(min(4*count+3, maxCachedNodes-1)))
}
