package bucket

import (
	"fmt"
	"testing"
)

// Few children are kept in a list and many in a map; nobody can tell.
func TestChildren(t *testing.T) {
	for _, n := range []int{0, 1, maxFew, maxFew + 1, 50} {
		var c children
		want := map[string]*Bucket{}
		for i := range n {
			name := fmt.Sprint("b", i*7%n)
			want[name] = &Bucket{depth: i}
			c.set([]byte(name), new(Bucket))
			c.set([]byte(name), want[name])
		}
		for i := 0; i < n; i += 3 {
			name := fmt.Sprint("b", i)
			delete(want, name)
			c.remove([]byte(name))
			c.remove([]byte("none"))
		}
		last := ""
		for _, e := range c.sorted() {
			name := string(e.name)
			if name <= last || want[name] != e.bucket {
				t.Errorf("%d children: %q behind %q", n, name, last)
			}
			last = name
		}
		if len(c.sorted()) != len(want) {
			t.Errorf("%d children: %d are left, want %d", n, len(c.sorted()), len(want))
		}
		for name, b := range want {
			if c.get([]byte(name)) != b {
				t.Errorf("%d children: %q is not found", n, name)
			}
		}
		if c.get([]byte("none")) != nil {
			t.Errorf("%d children: one is found that is not there", n)
		}
	}
	var none *children
	if none.remove([]byte("a")); none.get([]byte("a")) != nil || none.sorted() != nil {
		t.Error("no children, and there is one")
	}
}
