package blob

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"holdfast"
)

// More is gathered in a transaction than there is memory for, of which no, few or many chunks are
// stored already, so that they are not, or are, asked for before their bytes are stored; blobs
// are given up in between, others deleted; two Stores take part. Counts, bytes and
// marks are those of what is left.
func TestSpill(t *testing.T) {
	for _, o := range append([]Options{{}}, small...) {
		for _, repeated := range []float64{0, 0.01, 0.6} {
			t.Run(fmt.Sprintf("%v-%v", o, repeated), func(t *testing.T) { testSpill(t, o, repeated) })
		}
	}
}

func testSpill(t *testing.T, o Options, repeated float64) {
	const most = 1500
	db := newStore(t, o)
	rng := rand.New(rand.NewPCG(1, uint64(100*repeated)))
	type stored struct {
		ref     Ref
		content []byte
		users   uint64
	}
	all := map[chunkKey]*stored{}
	var earlier [][]byte
	put := func(s *Store, p []byte) {
		ref, err := s.Put(p)
		must(t, err)
		if all[ref.key()] == nil {
			all[ref.key()] = &stored{ref: ref, content: p}
		}
		all[ref.key()].users++
	}
	fresh := func() []byte {
		p := random(rng.Uint64(), 500+rng.IntN(500))
		if rng.IntN(50) == 0 { // with pages of its own, or nodes
			p = random(rng.Uint64(), 4000+rng.IntN(16000))
		}
		return p
	}
	update(t, db, func(s *Store) {
		for range most {
			p := fresh()
			earlier = append(earlier, p)
			put(s, p)
		}
	})
	givenUp := random(3, 700_000)
	update(t, db, func(s *Store) {
		other := openIn(s.tx)
		w := s.Writer()
		_, err := w.Write(givenUp)
		must(t, err)
		spilled, unique, before := 0, uint64(0), s.packs.Sequence()
		for i := range 3 * most {
			p := fresh()
			if unique++; rng.Float64() < repeated {
				p = earlier[rng.IntN(len(earlier))]
				unique--
			}
			put(s, p)
			if i%700 == 300 { // not known to s, which has spilled the same perhaps
				put(other, p)
			}
			if i == most {
				w.Abort()
			}
			spilled = max(spilled, s.batch.spilled)
			if i == 2*most+most/2 { // a flush amid it
				for k, b := range all {
					if b.users == 1 {
						must(t, s.Delete(b.ref))
						delete(all, k)
						break
					}
				}
			}
		}
		if o.Chunking != FastCDC && spilled < most/2 { // which has more leaves that are not short
			t.Error("nothing was spilled")
		}
		must(t, s.flush())
		if stored := s.packs.Sequence() - before; o == (Options{}) && repeated != 0.01 && stored > unique {
			t.Errorf("the bytes of %d chunks were stored, of which %d are new", stored, unique)
		}
		// One that was stored by the spill, and is given up.
		w = s.Writer()
		_, err = w.Write(random(4, 600))
		must(t, err)
		_, err = w.Write(random(5, 3*s.options.LeafSize))
		must(t, err)
		must(t, s.makeRoom(s.batch))
		w.Abort()
	})
	view(t, db, func(s *Store) {
		for k, b := range all {
			r, err := s.Reader(b.ref)
			must(t, err)
			var got bytes.Buffer
			_, err = r.WriteTo(&got)
			must(t, err)
			if !bytes.Equal(got.Bytes(), b.content) {
				t.Fatalf("%v has another content", b.ref)
			}
			if e, _, err := s.lookup(&k); err != nil || e.users != b.users {
				t.Errorf("%v has %d users, not %d: %v", b.ref, e.users, b.users, err)
			}
		}
	})
	// Deleted as often as they were put, all are dead, and nothing is left behind.
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		for _, b := range all {
			for range b.users {
				must(t, s.Delete(b.ref))
			}
		}
		return nil
	}))
	update(t, db, func(s *Store) {
		for more := true; more; {
			var err error
			_, more, err = s.Collect(1 << 20)
			must(t, err)
		}
		must(t, s.flush())
		if n := checkStore(t, s); n != 0 {
			t.Errorf("%d chunks are left", n)
		}
	})
}
