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
			for _, c := range (splitter{pageSize: 4096, fill: fill}).split(n, 0, nil) {
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

// With a hundred equal elements three pages were full and the fourth had one. bbolt's own
// test of damaged leaves takes any of them and needs two in it: it failed one time in four.
func TestNoSmallElementIsAlone(t *testing.T) {
	for count := 2; count < 200; count++ {
		n := &node{leaf: true, size: page.HeaderSize}
		for i := range count {
			n.insert(i, item{key: fmt.Appendf(nil, "%04d", i), value: make([]byte, 100)})
		}
		cuts := splitter{pageSize: 4096, fill: DefaultFill, append: true}.split(n, 0, nil)
		from, total := 0, page.HeaderSize
		for _, c := range cuts {
			if c.end-from < 2 || c.size > 4096-page.SealSize {
				t.Errorf("%d elements: one page of %d with %d bytes", count, c.end-from, c.size)
			}
			total += c.size - page.HeaderSize
			from = c.end
		}
		if from != count || total != n.size {
			t.Errorf("%d elements: %d in pages, %d of %d bytes", count, from, total, n.size)
		}
	}
	// Large ones are, rather than in a page that is longer for it.
	n := &node{leaf: true, size: page.HeaderSize}
	for i := range 5 {
		n.insert(i, item{key: fmt.Appendf(nil, "%d", i), value: make([]byte, 1300+500*(i/4)*4)})
	}
	for _, c := range (splitter{pageSize: 4096, fill: DefaultFill, append: true}).split(n, 0, nil) {
		if c.size > 4096 {
			t.Errorf("a run of %d bytes", c.size)
		}
	}
}
