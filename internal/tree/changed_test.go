package tree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"holdfast/internal/page"
)

// Pages lie in a file, and something else may write to it while they are read: of a page that was looked at, and is looked at
// again to be edited, the count or the type may be another then, and a place in it none. That must be an error, or a
// wrong answer, and never a panic.
func TestPagesChangedMeanwhile(t *testing.T) {
	for _, pageSize := range []int{512, 4096} {
		s := newStore(pageSize)
		tr := Open(s, NewEdit(s), 0)
		for i := range 1500 {
			if err := tr.Put(changedKey(i), []byte("some value"), 0); err != nil {
				t.Fatal(err)
			}
		}
		root, err := tr.Write(DefaultFill)
		if err != nil {
			t.Fatal(err)
		}
		pristine := maps.Clone(s.runs)
		failed := 0
		for seed := range uint64(3000) {
			r := rand.New(rand.NewPCG(seed, uint64(pageSize)))
			s.runs = make(map[page.ID][]byte, len(pristine))
			for id, run := range pristine {
				s.runs[id] = bytes.Clone(run)
			}
			clear(s.freed)
			if err := editChanged(s, root, r); err != nil {
				failed++
			}
		}
		if failed == 0 {
			t.Errorf("pages of %d bytes: no change was noticed", pageSize)
		}
	}
}

func changedKey(i int) []byte { return fmt.Appendf(nil, "key%05d", i) }

// editChanged edits a tree, changes its pages meanwhile, and writes it.
func editChanged(s *store, root page.ID, r *rand.Rand) error {
	tr := Open(s, NewEdit(s), root)
	var c Cursor
	c.Init(&tr)
	near := r.IntN(1500)
	if _, _, err := c.Seek(changedKey(near)); err != nil {
		return err
	}
	for range 1 + r.IntN(20) {
		key := changedKey(min(near+r.IntN(4), 1499))
		if _, _, _, err := tr.Lookup(key); err != nil {
			return err
		}
		if r.IntN(3) == 0 {
			changePage(s, root, r)
		}
		var err error
		switch r.IntN(6) {
		case 0:
			_, err = tr.Delete(key)
		case 1:
			err = tr.Put(key, []byte("some other"), 0)
		case 2:
			err = tr.Put(append(key, 'x'), []byte("new"), 0)
		case 3:
			_, err = c.DeleteValue()
		case 4:
			_, _, err = c.Next()
		default:
			_, _, err = c.Prev()
		}
		if err != nil {
			return err
		}
	}
	if err := tr.Merge(); err != nil {
		return err
	}
	_, err := tr.Write(DefaultFill)
	return err
}

// changePage changes the count, the type or an element of the root or of another page.
func changePage(s *store, root page.ID, r *rand.Rand) {
	run := s.runs[root]
	if r.IntN(2) == 0 {
		run = s.runs[page.FirstDataPage+page.ID(r.IntN(int(root-page.FirstDataPage)+1))]
	}
	count := int(binary.NativeEndian.Uint16(run[10:]))
	switch r.IntN(4) {
	case 0, 1:
		binary.NativeEndian.PutUint16(run[10:], uint16(r.IntN(count+2)))
	case 2:
		binary.NativeEndian.PutUint16(run[8:], 1+uint16(r.IntN(2)))
	default:
		at := page.HeaderSize + r.IntN(max(count, 1))*page.LeafElementSize + 4*r.IntN(4)
		binary.NativeEndian.PutUint32(run[at:], uint32(r.IntN(2*len(run))))
	}
}
