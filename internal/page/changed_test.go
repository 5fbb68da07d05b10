package page

import (
	"errors"
	"testing"
)

// What is changed in the file under a page that was looked at changes neither how long its run is, nor makes an encoder
// that copies it write outside of the copy.
func TestPageChangedMeanwhile(t *testing.T) {
	const size = 512
	data := make([]byte, 6*size)
	enc := NewLeaf(data[2*size:4*size], 2, 2, 1)
	enc.Leaf(0, []byte("a"), []byte("one"))
	enc.Leaf(0, []byte("b"), []byte("two"))
	enc.End()
	m := NewImage(data, size, 6)
	p, err := m.Page(2)
	if err != nil {
		t.Fatal(err)
	}
	order.PutUint32(data[2*size+12:], 1<<31)
	if p.Overflow() != 1 || p.Pages() != 2 || len(p.Bytes()) != 2*size {
		t.Errorf("the run has %d pages, %d bytes", p.Pages(), len(p.Bytes()))
	}
	end, ok := p.Packed()
	if !ok {
		t.Fatal("the page is not packed")
	}
	for _, field := range []int{4, 8, 12} {
		at := 2*size + HeaderSize + LeafElementSize + field
		before := order.Uint32(data[at:])
		for _, v := range []uint32{0, 2, 1000, 1 << 31} {
			order.PutUint32(data[at:], v)
			buf := make([]byte, 2*size)
			enc := CopyLeaf(buf, 5, p, end)
			var damage *CorruptError
			if err := enc.SetValue(1, []byte("new")); err != nil && !errors.As(err, &damage) || err == nil && v > 100 {
				t.Errorf("field %d is %d: %v", field, v, err)
			}
		}
		order.PutUint32(data[at:], before)
	}
}
