package blob

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func diff(t testing.TB, s *Store, a, b Ref) (ranges []Range) {
	t.Helper()
	must(t, s.Diff(a, b, func(r Range) error {
		ranges = append(ranges, r)
		return nil
	}))
	return ranges
}

// diffSome compares blobs that are cut by content, limit leaves at a time.
func diffSome(t testing.TB, s *Store, a, b Ref, limit int) (ranges []Range) {
	t.Helper()
	j := rangeJoiner{fn: func(r Range) error {
		ranges = append(ranges, r)
		return nil
	}}
	d := newContentDiff(s, a.key(), limit, &j)
	must(t, d.run(subtree{b.key(), b.size}))
	must(t, j.end())
	return ranges
}

// leavesOf gives all leaves of a content.
func leavesOf(m *model, content string) []string {
	all, rest := m.cut(content)
	if rest != "" || len(all) == 0 {
		all = append(all, rest)
	}
	return all
}

// naiveDiff compares contents leaf by leaf.
func naiveDiff(m *model, a, b string, la, lb []string) (ranges []Range) {
	add := func(r Range) {
		if n := len(ranges); n > 0 && ranges[n-1].Offset+ranges[n-1].Length == r.Offset && ranges[n-1].InA == r.InA {
			ranges[n-1].Length += r.Length
		} else if r.Length > 0 {
			ranges = append(ranges, r)
		}
	}
	in := map[string]bool{}
	if m.o.Chunking == FastCDC {
		for _, leaf := range la {
			in[leaf] = true
		}
	}
	at := 0
	for i, leaf := range lb {
		switch {
		case m.o.Chunking == FastCDC:
			if !in[leaf] {
				add(Range{Offset: int64(at), Length: int64(len(leaf))})
			}
		case i >= len(la) || la[i] != leaf:
			inA := min(len(leaf), max(len(a)-at, 0))
			add(Range{int64(at), int64(inA), true})
			add(Range{Offset: int64(at + inA), Length: int64(len(leaf) - inA)})
		}
		at += len(leaf)
	}
	return ranges
}

// Diff is what comparing all leaves gives, for contents of all sizes and their variants.
func TestDiff(t *testing.T) {
	for _, o := range []Options{{LeafSize: MinLeafSize}, {LeafSize: MinLeafSize, Chunking: FastCDC}} {
		t.Run(o.String(), func(t *testing.T) {
			o.setDefaults(4096)
			m := newModel(o)
			rng := rand.New(rand.NewPCG(1, 2))
			contents := someContents(rng, m)
			base := contents[8]
			for _, n := range []int{126 * 126, 126*126 + 1, 126*126 + 200} { // higher trees
				contents = append(contents, strings.Repeat(base[:MinLeafSize], n)+"end")
			}
			update(t, newStore(t, o), func(s *Store) {
				refs, leaves := make([]Ref, len(contents)), make([][]string, len(contents))
				for i, content := range contents {
					leaves[i] = leavesOf(m, content)
					refs[i] = must2(s.Put([]byte(content)))
				}
				for i, a := range contents {
					for j, b := range contents {
						if got, want := diff(t, s, refs[i], refs[j]), naiveDiff(m, a, b, leaves[i], leaves[j]); !slices.Equal(got, want) {
							t.Fatalf("%d bytes against %d: %v, want %v", len(b), len(a), got, want)
						}
						if o.Chunking == FastCDC { // a few leaves at a time
							if got, want := diffSome(t, s, refs[i], refs[j], 1+rng.IntN(50)), naiveDiff(m, a, b, leaves[i], leaves[j]); !slices.Equal(got, want) {
								t.Fatalf("%d bytes against %d, some at a time: %v, want %v", len(b), len(a), got, want)
							}
						}
						if len(b) <= MaxInline {
							if got, want := diff(t, s, refs[i], must2(s.PutInline([]byte(b)))), naiveDiff(m, a, b, leaves[i], leaves[j]); !slices.Equal(got, want) {
								t.Fatalf("%d bytes inline against %d: %v, want %v", len(b), len(a), got, want)
							}
						}
					}
				}
			})
		})
	}
}

// A few nodes, of which each names the same child a hundred times, stand for more leaves than anything
// could go through: Diff did not end, and called nothing that could have ended it.
func TestDiffOfRepeatedNodes(t *testing.T) {
	update2(t, newStore(t, Options{LeafSize: MinLeafSize, Chunking: FastCDC}), func(s *Store) { // counts of parents are not right
		const size, levels = 100, 6
		leaf := chunkKey{addr: s.options.Algorithm.sum(make([]byte, size))}
		_, err := s.add(&leaf, make([]byte, size), asUser)
		must(t, err)
		k, total := leaf, int64(size)
		for level := uint8(1); level <= levels; level++ {
			n := s.options.shape().fanout()
			p := make([]byte, nodeHeaderSize)
			copy(p, cdcMagic)
			p[4] = level
			for range n {
				p = append(p, k.addr[:]...)
				p = binary.LittleEndian.AppendUint64(p, uint64(total)|uint64(k.level)<<56)
			}
			total *= int64(n)
			binary.LittleEndian.PutUint16(p[6:], uint16(n))
			binary.LittleEndian.PutUint64(p[8:], uint64(total))
			k = chunkKey{addr: s.options.Algorithm.sum(p), level: level}
			_, err := s.add(&k, p, asUser)
			must(t, err)
		}
		for name, c := range map[string]struct {
			a    Ref
			want []Range
		}{
			"nothing of it": {must2(s.Put(random(1, 5000))), []Range{{Length: total}}},
			"all of it":     {s.ref(leaf, size), nil},
		} {
			var ranges []Range
			j := rangeJoiner{fn: func(r Range) error { ranges = append(ranges, r); return nil }}
			d := newContentDiff(s, c.a.key(), diffLeaves, &j)
			must(t, d.run(subtree{k, total}))
			must(t, j.end())
			if !slices.Equal(ranges, c.want) || d.taken > 100*diffLeaves {
				t.Errorf("%s: %v, want %v; %d leaves were gone through", name, ranges, c.want, d.taken)
			}
		}
	})
}

// Equal subtrees are not entered: that one is damaged is not noticed, but in one that differs it is.
func TestDiffSkips(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	update2(t, db, func(s *Store) {
		p := random(1, 400*MinLeafSize)
		a := must2(s.Put(p))
		p[399*MinLeafSize] ^= 1
		b := must2(s.Put(p))
		d := damaged{Store: s, t: t}
		n := must2(s.loadNode(&chunkKey{a.addr, a.level}))
		first, _ := n.child(0)
		last, _ := n.child(3)
		d.overwrite(first, flip)
		s = reopened(t, s.tx)
		if got, want := diff(t, s, a, b), []Range{{399 * MinLeafSize, MinLeafSize, true}}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		d.overwrite(last, flip)
		s = reopened(t, s.tx)
		if err := s.Diff(a, b, func(Range) error { return nil }); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%v", err)
		}
	})
}

// What cannot be compared is an error, and so is what the function returns.
func TestDiffErrors(t *testing.T) {
	update(t, newStore(t, Options{LeafSize: MinLeafSize}), func(s *Store) {
		a, b := must2(s.Put(random(1, 5*MinLeafSize))), must2(s.Put(random(2, 5*MinLeafSize)))
		enough := errors.New("enough")
		longer := b
		longer.size++
		for _, c := range []struct {
			a, b Ref
			want error
		}{
			{a, b, enough},
			{a, Ref{algorithm: SHA256, size: 1}, ErrNotFound},
			{a, Ref{algorithm: BLAKE3, size: 1}, ErrAlgorithm},
			{inlineRef(BLAKE3, nil), a, ErrAlgorithm},
			{a, longer, ErrInvalidRef},
		} {
			if err := s.Diff(c.a, c.b, func(Range) error { return enough }); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		}
	})
}
