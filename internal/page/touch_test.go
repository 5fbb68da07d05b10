package page

import (
	"runtime/debug"
	"testing"
)

// Offset knows the bytes of the image from others.
func TestOffset(t *testing.T) {
	m := NewImage(make([]byte, 64*512), 512, 50)
	if m.Size() != 50*512 {
		t.Errorf("size %d", m.Size())
	}
	for _, c := range []struct {
		b  []byte
		at uint64
		ok bool
	}{
		{m.data[:1], 0, true},
		{m.data[700:900], 700, true},
		{m.data[64*512-1:], 64*512 - 1, true},
		{m.data[700:700], 0, false},
		{nil, 0, false},
		{make([]byte, 10), 0, false},
	} {
		if at, ok := m.Offset(c.b); at != c.at || ok != c.ok {
			t.Errorf("%d %t, want %d %t", at, ok, c.at, c.ok)
		}
	}
	empty := NewImage(nil, 512, 0)
	if _, ok := empty.Offset(m.data[:1]); ok {
		t.Error("bytes of an image without any")
	}
}

// Touch leaves the goroutine's readiness for faults as it was.
func TestTouch(t *testing.T) {
	m := NewImage(make([]byte, 1<<20), 512, 1<<11)
	for _, before := range []bool{false, true} {
		outer := debug.SetPanicOnFault(before)
		for _, r := range [][2]uint64{{0, 0}, {0, 1}, {5, 1 << 20}, {1<<20 - 1, 1 << 20}, {70_000, 70_001}, {9, 3}} {
			m.Touch(r[0], r[1])
		}
		if after := debug.SetPanicOnFault(outer); after != before {
			t.Errorf("%t, and then %t", before, after)
		}
	}
}
