package tree

import (
	"fmt"
	"testing"

	"holdfast/internal/page"
)

// Offsets in a page have 32 bits: large values that share a run overflowed them
// without a word. (Values of this test are not read, so they cost nothing.)
func TestSplitKeepsOffsetsIn32Bits(t *testing.T) {
	if ^uint(0)>>32 == 0 {
		t.Skip("values of this size do not exist on a 32-bit processor")
	}
	value := make([]byte, 3<<29) // 1.5 GiB
	for _, fill := range []float64{DefaultFill, 0.9} {
		for count := 1; count < 9; count++ {
			n := &node{leaf: true, size: page.HeaderSize}
			for i := range count {
				n.insert(i, item{key: fmt.Appendf(nil, "%d", i), value: value})
			}
			from := 0
			for _, c := range (splitter{pageSize: 4096, fill: fill}).split(n, nil) {
				size := page.HeaderSize
				for i := from; i < c.end; i++ {
					if uint64(size) > 1<<32-1 {
						t.Fatalf("fill %v: element %d of %d begins at %d", fill, i, count, size)
					}
					size += itemSize(&n.items[i])
				}
				if size != c.size || c.end <= from {
					t.Fatalf("fill %v: part to %d of %d bytes, counted %d", fill, c.end, c.size, size)
				}
				from = c.end
			}
			if from != count {
				t.Fatalf("fill %v: parts end at %d of %d", fill, from, count)
			}
		}
	}
}
