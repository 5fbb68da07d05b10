package tree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Elements of all sizes are appended with WideFill and without, deleted and set again, in one transaction after the other: the tree
// has what the model has, and no page twice or lost.
func TestAppendWide(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := newAppendStore(512)
		m := model{}
		tr := Open(s, NewEdit(s), 0)
		next := 0
		for range 6 {
			fills := []float64{WideFill, WideFill, DefaultFill}
			most := []int{20, 200, 500, 2000}[rng.IntN(4)]
			for range rng.IntN(1500) {
				if rng.IntN(200) == 0 {
					slices.Reverse(fills)
				}
				key := fmt.Appendf(nil, "%08d", next)
				next++
				value := bytes.Repeat([]byte{byte(next)}, rng.IntN(most))
				if err := tr.Append(s, fills[0], key, value); err != nil {
					t.Fatal(err)
				}
				m[string(key)] = string(value)
				clear(key)
				clear(value)
			}
			for range rng.IntN(300) {
				if next == 0 {
					break
				}
				key := fmt.Sprintf("%08d", rng.IntN(next))
				if _, ok := m[key]; ok && rng.IntN(4) == 0 {
					m[key] = string(make([]byte, rng.IntN(most)))
					if err := tr.Put([]byte(key), []byte(m[key]), 0); err != nil {
						t.Fatal(err)
					}
					continue
				}
				if _, err := tr.Delete([]byte(key)); err != nil {
					t.Fatal(err)
				}
				delete(m, key)
			}
			compare(t, &tr, m)
			if err := tr.Merge(); err != nil {
				t.Fatal(err)
			}
			root, err := tr.Write(fills[0])
			if err != nil {
				t.Fatal(err)
			}
			s.end(t, &tr)
			tr = Open(s, NewEdit(s), root)
			compare(t, &tr, m)
		}
		for _, pages := range leaves(t, &tr) {
			if pages > WideFill {
				t.Errorf("seed %d: a leaf of %d pages", seed, pages)
			}
		}
	}
}
