package tree

import (
	"math"
	"testing"

	"holdfast/internal/page"
)

// A page counts its elements in 16 bits. With large pages, tiny keys and a fill
// share set by the caller, or as an inline bucket, more than 65,534 elements
// came into one page, whose count wrapped around: keys were lost without a word.
func TestElementCountFitsPage(t *testing.T) {
	n := &node{leaf: true, size: page.HeaderSize}
	for range page.MaxCount + 5000 {
		n.insert(len(n.items), item{key: []byte("key")})
	}
	for _, fill := range []float64{DefaultFill, 0.1, 0.5, 0.9, 1} {
		for _, pageSize := range []int{4 << 20, 16 << 20} {
			from := 0
			for _, c := range (splitter{pageSize: pageSize, fill: fill}).split(n, 0, nil) {
				if c.end-from > page.MaxCount || c.end <= from {
					t.Errorf("fill %v, pages of %d bytes: a part from %d to %d", fill, pageSize, from, c.end)
				}
				from = c.end
			}
			if from != len(n.items) {
				t.Errorf("fill %v, pages of %d bytes: parts end at %d of %d", fill, pageSize, from, len(n.items))
			}
		}
	}
	if size, ok := (&Tree{node: n}).InlineSize(math.MaxInt); ok {
		t.Errorf("%d elements may be inline, in %d bytes", len(n.items), size)
	}
	n.items = n.items[:page.MaxCount]
	if _, ok := (&Tree{node: n}).InlineSize(math.MaxInt); !ok {
		t.Error("as many elements as a page counts may not be inline")
	}
}

// The bytes of a node in memory were summed in an int, which wrapped around on
// processors of 32 bits: a few large values became a page of some hundred bytes.
func TestNodeSizeFitsInt(t *testing.T) {
	if math.MaxInt != math.MaxInt32 {
		t.Skip("nothing is that large on a 64-bit processor")
	}
	s := newStore(512)
	tr := OpenInline(s, NewEdit(s), page.Page{})
	if err := tr.Put([]byte("a"), nil, 0); err != nil {
		t.Fatal(err)
	}
	tr.node.size = math.MaxInt - 100
	if err := tr.Put([]byte("b"), make([]byte, 100), 0); err != ErrTooLarge {
		t.Errorf("too much for an int: %v", err)
	}
	if err := tr.Put([]byte("b"), nil, 0); err != nil {
		t.Errorf("just not too much: %v", err)
	}
}
