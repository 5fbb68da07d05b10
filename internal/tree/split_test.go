package tree

import (
	"fmt"
	"math/rand/v2"
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
	for _, fill := range []float64{DefaultFill, 0.9, WideFill} {
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

// Leaves with WideFill have as few pages as waste little, but not more than 16, or one element; the last may waste more.
func TestWideLeaves(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		low, high int   // bytes of a value
		waste     int64 // the share, one in so many, that may be wasted
	}{{1, 20, 30}, {300, 300, 60}, {1000, 1000, 60}, {900, 1100, 50}, {1500, 3000, 20}, {1, 4000, 30}, {4000, 9000, 12}, {50_000, 200_000, 5}} {
		n := &node{leaf: true, size: page.HeaderSize}
		for i := range 2000 {
			n.insert(i, item{key: fmt.Appendf(nil, "%08d", i), value: make([]byte, c.low+rng.IntN(c.high-c.low+1))})
		}
		from := 0
		var used, taken int64
		for _, part := range (splitter{pageSize: 4096, fill: WideFill}).split(n, 0, nil) {
			size := page.HeaderSize
			for i := from; i < part.end; i++ {
				size += itemSize(&n.items[i])
			}
			pages := (size + 4095) / 4096
			if size != part.size || part.end <= from || part.end-from > 1 && (pages > 16 || pages*4096-size < page.SealSize) {
				t.Fatalf("%v: %d elements of %d bytes, said to be %d", c, part.end-from, size, part.size)
			}
			if from = part.end; from < 2000 {
				used, taken = used+int64(size), taken+int64(pages)*4096
			}
		}
		if from != 2000 || (taken-used)*c.waste > taken {
			t.Errorf("%v: %d bytes take %d; parts end at %d", c, used, taken, from)
		}
	}
	branch := &node{size: page.HeaderSize}
	for i := range 3000 {
		branch.insert(i, item{key: fmt.Appendf(nil, "%08d", i), child: page.ID(i + 2)})
	}
	for _, part := range (splitter{pageSize: 4096, fill: WideFill}).split(branch, 0, nil) {
		if part.size > 4096 {
			t.Errorf("a branch of %d bytes", part.size)
		}
	}
}
