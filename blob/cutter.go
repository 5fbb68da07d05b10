package blob

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
)

// cutter finds where leaves end. It is given the content in pieces of any size and
// keeps what it needs of those before.
type cutter struct {
	cdc              bool
	n                int // bytes of the leaf so far
	size             int // of a leaf; cut by content, the size that is aimed at
	min, max         int
	print            uint64 // rolling hash of the last 64 bytes
	gear             *[256]uint64
	strict, generous uint64 // bits of it that are zero where a leaf ends
}

// The FastCDC of Xia et al. (USENIX ATC 2016): gear hash, no cut below the smallest size,
// normalized chunking of level 2: two bits more below the size that is aimed at, two fewer above.
const normalization = 2

func newCutter(o *Options) cutter {
	c := cutter{cdc: o.Chunking == FastCDC, size: o.LeafSize, min: o.LeafSize / maxSpread, max: o.LeafSize * maxSpread, gear: &gear}
	if o.Key != nil {
		c.gear = &o.Key.gear
	}
	width := int(math.Round(math.Log2(float64(o.LeafSize))))
	// The highest bits depend on the most bytes.
	c.strict = math.MaxUint64 << (64 - width - normalization)
	c.generous = math.MaxUint64 << (64 - width + normalization)
	return c
}

// reset begins a new blob.
func (c *cutter) reset() { c.n, c.print = 0, 0 }

// cut tells how many bytes from the front of p belong to the current leaf, and whether
// it ends there. If not, all of p does.
func (c *cutter) cut(p []byte) (n int, end bool) {
	if !c.cdc {
		n = min(len(p), c.size-c.n)
		c.n += n
		if end = c.n == c.size; end {
			c.n = 0
		}
		return n, end
	}
	n, end = c.scan(p)
	if end {
		c.reset()
	} else {
		c.n += n
	}
	return n, end
}

func (c *cutter) scan(p []byte) (int, bool) {
	i := max(min(c.min-c.n, len(p)), 0)
	print, gear := c.print, c.gear
	for _, part := range [...]struct {
		end  int
		mask uint64
	}{{c.size, c.strict}, {c.max, c.generous}} {
		stop := min(part.end-c.n, len(p))
		for ; i < stop; i++ {
			print = print<<1 + gear[p[i]]
			if print&part.mask == 0 {
				return i + 1, true
			}
		}
	}
	c.print = print
	return i, c.n+i == c.max
}

// gear is a random number for each byte. It is part of the format: with another one,
// equal content would be cut elsewhere. An encrypted store has one of its key's.
var gear = makeGear()

func makeGear() (g [256]uint64) {
	for i := range g {
		sum := sha256.Sum256([]byte{'g', 'e', 'a', 'r', byte(i)})
		g[i] = binary.LittleEndian.Uint64(sum[:])
	}
	return g
}
