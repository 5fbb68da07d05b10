package blob

import (
	"errors"
	"fmt"
	"testing"
)

// The entries of two leaves have exchanged where their bytes lie, and one of the leaves is dead: what is compressed, and what is not.
// Neither gives the other's bytes; a repair with Data gives each its own again, and Collect then removes those of the dead one.
func TestSwappedWithDead(t *testing.T) {
	kinds := map[string]func(uint64, int) []byte{"text": words, "noise": noise}
	for _, compression := range []Compression{NoCompression, Zstd} {
		for alive, one := range kinds {
			for dead, other := range kinds {
				for _, sizes := range [][2]int{{4096, 4096}, {4096, 4000}, {700, 4096}, {600, 600}} {
					t.Run(fmt.Sprint(compression, " ", alive, dead, sizes), func(t *testing.T) {
						s := swapped{t: t, one: one(1, sizes[0]), other: other(2, sizes[1])}
						s.run(Options{LeafSize: 4096, Compression: compression})
					})
				}
			}
		}
	}
}

type swapped struct {
	t          *testing.T
	one, other []byte
	refs       [2]Ref
}

func (w *swapped) run(o Options) {
	t, db := w.t, newStore(w.t, o)
	must(t, commits(db, func(s *Store) error {
		w.refs = [2]Ref{must2(s.Put(w.one)), must2(s.Put(w.other))}
		return nil
	}))
	must(t, commits(db, func(s *Store) error { return s.Delete(w.refs[1]) }))
	must(t, commits(db, func(s *Store) error { w.swap(s); return nil }))
	for range 2 { // no mark is left by the first time
		view(t, db, func(s *Store) {
			if err := reads(s, w.refs[0], w.one); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrInvalidRef) { // another length
				t.Errorf("bytes of another leaf: %v", err)
			}
		})
	}
	must(t, commits(db, func(s *Store) error {
		found, text := problems(t, s, CheckOptions{Data: true, Repair: true, Roots: rootsOf(w.refs[0])})
		if len(found) == 0 {
			t.Error("nothing was found")
		}
		if s = reopened(t, s.tx); reads(s, w.refs[0], w.one) != nil {
			t.Errorf("after a repair: %v\n%s", reads(s, w.refs[0], w.one), text)
		}
		return checkClean(s, CheckOptions{Data: true, Roots: rootsOf(w.refs[0])})
	}))
	update(t, db, func(s *Store) { // the dead one is whole, too
		must2(s.Put(w.other))
		must(t, reads(s, w.refs[1], w.other))
		must(t, s.Delete(w.refs[1]))
		must(t, collectAll(s))
		must(t, reads(s, w.refs[0], w.one))
	})
	view(t, db, func(s *Store) {
		if u := must2(s.Usage()); u.Leaves != 1 || u.Dead != 0 {
			t.Errorf("behind a Collect there are %+v", u)
		}
	})
}

// swap exchanges number, length and form of the bytes in the two entries, and leaves their counts.
func (w *swapped) swap(s *Store) {
	var keys [2]chunkKey
	var e [2]entry
	for i, ref := range w.refs {
		var found bool
		var err error
		keys[i] = ref.key()
		if e[i], found, err = s.lookup(&keys[i]); err != nil || !found {
			w.t.Fatalf("no entry: %v", err)
		}
	}
	a, b := e[0], e[1]
	e[0].packed, e[0].id, e[0].length, e[0].stored = b.packed, b.id, b.length, b.stored
	e[1].packed, e[1].id, e[1].length, e[1].stored = a.packed, a.id, a.length, a.stored
	for i := range keys {
		in := s.index
		if e[i].recent {
			in = s.recent
		}
		must(w.t, in.Put(keys[i].encoded(), e[i].append(nil)))
	}
}
