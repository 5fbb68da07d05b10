package tree

import (
	"errors"
	"testing"

	"holdfast/internal/page"
)

// On a damaged leaf whose keys do not ascend a walk with edits between its
// moves never ended: each move looked its key up again, and came back to
// elements that it had passed.
func TestUnorderedPageEndsWalk(t *testing.T) {
	for name, c := range map[string]struct {
		first, second []string
		back          bool
	}{
		"forward":              {[]string{"a", "c", "b"}, []string{"x", "y"}, false},
		"backward":             {[]string{"a", "z"}, []string{"m", "y"}, true},
		"backward, other leaf": {[]string{"a", "zz", "z"}, []string{"x", "y"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(512)
			leaf := func(keys []string) page.ID {
				id, buf, _ := s.Allocate(1, true)
				enc := page.NewLeaf(buf, id, len(keys), 0)
				for _, k := range keys {
					enc.Leaf(0, []byte(k), []byte("v"))
				}
				enc.Finish(true)
				return id
			}
			one, two := leaf(c.first), leaf(c.second)
			root, buf, _ := s.Allocate(1, true)
			enc := page.NewBranch(buf, root, 2, 0)
			enc.Branch([]byte(c.first[0]), one)
			enc.Branch([]byte(c.second[0]), two)
			enc.Finish(true)

			tr := Open(s, NewEdit(s), root)
			var cursor Cursor
			cursor.Init(&tr)
			begin, move := cursor.First, cursor.Next
			if c.back {
				begin, move = cursor.Last, cursor.Prev
			}
			_, ok, err := begin()
			for moves := 0; ok && err == nil; moves++ {
				if moves > 20 {
					t.Fatal("the walk does not end")
				}
				if err := tr.Put([]byte("y"), []byte("other"), 0); err != nil {
					t.Fatal(err)
				}
				_, ok, err = move()
			}
			var damage *page.CorruptError
			if !errors.As(err, &damage) {
				t.Errorf("the walk ends with %v, want the damage", err)
			}
		})
	}
}
