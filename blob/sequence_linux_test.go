package blob

import (
	"bytes"
	"errors"
	"slices"
	"syscall"
	"testing"

	"holdfast"
)

// A leaf with the next id that the blob does not have may be on pages that cannot be read.
func TestUnreadableNeighbour(t *testing.T) {
	const leaf, leaves = 65488, 8
	data := random(4, leaf*leaves)
	neighbour, own := random(5, leaf), random(6, leaf)
	db := newStore(t, Options{})
	var bad, ref Ref
	update(t, db, func(s *Store) {
		bad = must2(s.Put(slices.Concat(data, neighbour)))
		ref = must2(s.Put(slices.Concat(data, own)))
	})
	db = changedFile(t, db, func([]byte) {})
	view(t, db, func(s *Store) {
		k := chunkKey{addr: s.options.sum(neighbour)}
		e, _, err := s.lookup(&k)
		must(t, err)
		pages := must2(s.data(&e))[4096-40:] // from the second on
		if err := syscall.Mprotect(pages[:8192], syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	})
	for way, read := range ways {
		view(t, db, func(s *Store) {
			r := must2(s.Reader(ref))
			if got, err := read(r); err != nil || !bytes.Equal(got, slices.Concat(data, own)) {
				t.Errorf("%s: %d bytes, %v", way, len(got), err)
			}
			if r.order.after == 0 {
				t.Errorf("%s: no guess was made", way)
			}
		})
		if err := db.View(func(tx *holdfast.Tx) error {
			_, err := read(must2(openIn(tx).Reader(bad)))
			return err
		}); !errors.Is(err, holdfast.ErrUnreadable) {
			t.Errorf("%s: reading the leaf that cannot be read: %v", way, err)
		}
	}
}
