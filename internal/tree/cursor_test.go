package tree

import (
	"testing"

	"holdfast/internal/page"
)

// A Seek that found nothing left the key of the position before it; a Next or
// Prev from there compared it with another leaf and reported damage.
func TestMoveAfterSeekPastEnd(t *testing.T) {
	s := newStore(512)
	tr := OpenInline(s, NewEdit(s), page.Page{})
	for i := range 26 {
		if err := tr.Put([]byte{byte('a' + i)}, make([]byte, 100), 0); err != nil {
			t.Fatal(err)
		}
	}
	root, err := tr.Write(DefaultFill)
	if err != nil {
		t.Fatal(err)
	}
	tr = Open(s, nil, root)
	for _, back := range []bool{false, true} {
		var c Cursor
		c.Init(&tr)
		if _, ok, err := c.Seek([]byte("a")); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, ok, err := c.Seek([]byte("zz")); ok || err != nil {
			t.Fatal(ok, err)
		}
		if back {
			if e, ok, err := c.Prev(); !ok || err != nil || string(e.Key) != "z" {
				t.Fatalf("Prev behind the end: %q %v %v, want z", e.Key, ok, err)
			}
		} else if _, ok, err := c.Next(); ok || err != nil {
			t.Fatalf("Next behind the end: %v %v", ok, err)
		}
	}
}
