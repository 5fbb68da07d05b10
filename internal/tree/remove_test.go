package tree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"holdfast/internal/page"
)

// A caller that emptied a tree by First and Delete passed all leaves that were empty by then, each
// time: 100,000 keys took half a minute. And each Delete in a long leaf to which keys had been appended
// moved up to 32,768 items. Now an empty leaf goes at once, and a long one is split.
func TestDeleteIsLinear(t *testing.T) {
	const n = 40_000
	for _, written := range []bool{true, false} {
		for _, how := range []string{"first", "cursor", "half", "last", "random", "outward"} {
			t.Run(fmt.Sprintf("%s,written=%v", how, written), func(t *testing.T) {
				s := newStore(4096)
				edit := NewEdit(s)
				tr := OpenInline(s, edit, page.Page{})
				for i := range n {
					if err := tr.Put(numbered(i), numbered(i), 0); err != nil {
						t.Fatal(err)
					}
				}
				if written {
					if _, err := tr.Write(DefaultFill); err != nil {
						t.Fatal(err)
					}
				}
				left := n
				deleteAs(t, how, n, &tr, func() {
					if left--; left%1999 == 0 {
						noEmptyLeaf(t, &tr)
					}
				})
				if edit.moved > n*maxNodeItems {
					t.Errorf("%d deletes moved %d items", n-left, edit.moved)
				}
				noEmptyLeaf(t, &tr)
				checkTree(t, s, &tr, left)
			})
		}
	}
}

func numbered(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }

// deleteAs deletes keys of a tree that has those from 0 to n, and calls after when each is deleted.
func deleteAs(t *testing.T, how string, n int, tr *Tree, after func()) {
	var c Cursor
	c.Init(tr)
	at := func(i int) {
		if ok, err := tr.Delete(numbered(i)); err != nil || !ok {
			t.Fatalf("delete %d: %v %v", i, ok, err)
		}
		after()
	}
	e, ok, err := c.First()
	switch how {
	case "first":
		for ; ok; e, ok, err = c.First() {
			at(int(binary.BigEndian.Uint32(e.Key)))
		}
	case "last":
		for e, ok, err = c.Last(); ok; e, ok, err = c.Last() {
			at(int(binary.BigEndian.Uint32(e.Key)))
		}
	case "cursor", "half":
		for i := 0; ok; e, ok, err = c.Next() {
			if want := binary.BigEndian.Uint32(e.Key); int(want) != i {
				t.Fatalf("key %d, want %d", want, i)
			}
			if i++; how == "cursor" || i%2 == 0 {
				if err := deleteAt(&c); err != nil {
					t.Fatal(err)
				}
				after()
			}
		}
	case "random":
		for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
			at(i)
		}
	case "outward":
		for i := range n / 2 {
			at(n/2 + i)
			at(n/2 - 1 - i)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func noEmptyLeaf(t *testing.T, tr *Tree) {
	t.Helper()
	if err := tr.Walk(func(l *Level) error {
		if l.Depth > 0 && l.Count() == 0 {
			return fmt.Errorf("there is an empty node at depth %d", l.Depth)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// checkTree writes the tree and finds so many keys in it, in their order.
func checkTree(t *testing.T, s *store, tr *Tree, want int) {
	t.Helper()
	if err := tr.Merge(); err != nil {
		t.Fatal(err)
	}
	root, err := tr.Write(DefaultFill)
	if err != nil {
		t.Fatal(err)
	}
	s.end(t, tr) // each page that is not used is free, once
	written := Open(s, nil, root)
	var c Cursor
	c.Init(&written)
	got, before := 0, -1
	e, ok, err := c.First()
	for ; ok; e, ok, err = c.Next() {
		if k := int(binary.BigEndian.Uint32(e.Key)); k <= before {
			t.Fatalf("key %d after %d", k, before)
		} else {
			before = k
		}
		got++
	}
	if err != nil || got != want {
		t.Fatalf("%d keys, want %d: %v", got, want, err)
	}
}

// A leaf on a damaged page may hold a key that belongs elsewhere: removing it must not take
// another leaf off the tree.
func TestDeleteMisplacedKey(t *testing.T) {
	s := newStore(512)
	tr := OpenInline(s, NewEdit(s), page.Page{})
	for i := range 100 {
		if err := tr.Put(numbered(i*2), make([]byte, 20), 0); err != nil {
			t.Fatal(err)
		}
	}
	root, err := tr.Write(DefaultFill)
	if err != nil {
		t.Fatal(err)
	}
	tr = Open(s, NewEdit(s), root)
	p, err := s.Page(root)
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Page(p.Child(0))
	if err != nil {
		t.Fatal(err)
	}
	n := first.Count()
	key, err := first.Key(n - 1)
	if err != nil {
		t.Fatal(err)
	}
	copy(key, numbered(150)) // the mapping of this store can be written
	var c Cursor
	c.Init(&tr)
	if _, _, err = c.First(); err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err = c.DeleteValue(); err != nil {
			break
		}
		if _, _, err = c.Next(); err != nil {
			break
		}
	}
	var damage *page.CorruptError
	if !errors.As(err, &damage) {
		t.Fatalf("error %v, want damage", err)
	}
}
