package tree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"holdfast/internal/page"
)

// A leaf with WideFill began with an element of more than 16 pages whose last page had room for the next one. The part then took
// all following elements with the size of the first two, and the encoder wrote beyond its pages.
func TestWideLeafOfHugeElement(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		n := &node{leaf: true, size: page.HeaderSize}
		for i := range 1 + rng.IntN(200) {
			size := rng.IntN(3000)
			if rng.IntN(4) == 0 {
				size = rng.IntN(300_000)
			}
			n.insert(i, item{key: fmt.Appendf(nil, "%08d", i), value: make([]byte, size)})
		}
		from := 0
		for _, part := range (splitter{pageSize: 4096, fill: WideFill}).split(n, 0, nil) {
			size := page.HeaderSize
			for i := from; i < part.end; i++ {
				size += itemSize(&n.items[i])
			}
			if pages := (size + 4095) / 4096; size != part.size || part.end <= from || part.end-from > 1 && pages > WideFill {
				t.Fatalf("%d elements from %d on have %d bytes, and are said to have %d", part.end-from, from, size, part.size)
			}
			from = part.end
		}
		if from != len(n.items) {
			t.Fatalf("%d elements, and parts for %d", len(n.items), from)
		}
	}
}

// Such leaves come about where a leaf that has become too empty is joined with that of a huge element.
func TestWideLeafOfHugeElementJoined(t *testing.T) {
	s := newAppendStore(512)
	tr := Open(s, NewEdit(s), 0)
	m := model{}
	set := func(i, size int) {
		key, value := fmt.Sprintf("%08d", i), bytes.Repeat([]byte{byte(i)}, size)
		m[key] = string(value)
		if err := tr.Append(s, WideFill, []byte(key), value); err != nil {
			t.Fatal(err)
		}
	}
	next := func() {
		t.Helper()
		if err := tr.Merge(); err != nil {
			t.Fatal(err)
		}
		root, err := tr.Write(WideFill)
		if err != nil {
			t.Fatal(err)
		}
		s.end(t, &tr)
		tr = Open(s, NewEdit(s), root)
		compare(t, &tr, m)
	}
	for i := range 400 {
		size := 2
		if i%40 == 0 {
			size = 18*512 - 75 // room for one small element
		}
		set(i, size)
	}
	next()
	for i := range 400 {
		if i%40 > 3 {
			key := fmt.Sprintf("%08d", i)
			if _, err := tr.Delete([]byte(key)); err != nil {
				t.Fatal(err)
			}
			delete(m, key)
		}
	}
	next()
}

// A wide leaf has no more elements than a page can count, however short they are.
func TestWideLeafOfManyElements(t *testing.T) {
	n := &node{leaf: true, size: page.HeaderSize}
	for i := range 2*page.MaxCount + 5 {
		n.push(&item{key: fmt.Appendf(nil, "%06d", i)})
	}
	for _, pageSize := range []int{64 << 10, 256 << 10, 4 << 20} {
		from := 0
		for _, part := range (splitter{pageSize: pageSize, fill: WideFill}).split(n, 0, nil) {
			size := page.HeaderSize + (part.end-from)*itemSize(&n.items[0])
			if part.end <= from || part.end-from > page.MaxCount || part.size != size {
				t.Fatalf("pages of %d bytes: %d elements from %d on, of %d bytes", pageSize, part.end-from, from, part.size)
			}
			from = part.end
		}
		if from != len(n.items) {
			t.Errorf("pages of %d bytes: %d elements in parts", pageSize, from)
		}
	}
}
