package blob

import (
	"bytes"
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
							if got, want := diff(t, s, refs[i], inlineRef(o.Algorithm, []byte(b))), naiveDiff(m, a, b, leaves[i], leaves[j]); !slices.Equal(got, want) {
								t.Fatalf("%d bytes inline against %d: %v, want %v", len(b), len(a), got, want)
							}
						}
					}
				}
			})
		})
	}
}

// graphNode is a node that was made by hand, with the leaves below it.
type graphNode struct {
	key    chunkKey
	size   int64
	leaves []subtree // as far as the test asks for them
}

// graphLeaf stores a leaf.
func graphLeaf(t testing.TB, s *Store, p []byte) graphNode {
	k := chunkKey{addr: s.options.sum(p)}
	_, err := s.add(&k, p, nil, asUser)
	must(t, err)
	return graphNode{k, int64(len(p)), []subtree{{k, int64(len(p))}}}
}

// graphParent stores a node of the level above its children's; the last of them may be lower.
func graphParent(t testing.TB, s *Store, children []graphNode) (n graphNode) {
	p := make([]byte, nodeHeaderSize)
	copy(p, cdcMagic)
	p[4] = children[0].key.level + 1
	for _, c := range children {
		p = append(p, c.key.addr[:]...)
		p = binary.LittleEndian.AppendUint64(p, uint64(c.size)|uint64(c.key.level)<<56)
		n.size += c.size
		if len(n.leaves) < 1<<12 {
			n.leaves = append(n.leaves, c.leaves...)
		}
	}
	binary.LittleEndian.PutUint16(p[6:], uint16(len(children)))
	binary.LittleEndian.PutUint64(p[8:], uint64(n.size))
	n.key = chunkKey{addr: s.options.sum(p), level: p[4]}
	_, err := s.add(&n.key, p, nil, asUser)
	must(t, err)
	return n
}

// diffGraph compares two nodes, limit leaves at a time.
func diffGraph(t testing.TB, s *Store, a, b graphNode, limit int) (ranges []Range, d *contentDiff) {
	j := rangeJoiner{fn: func(r Range) error { ranges = append(ranges, r); return nil }}
	d = newContentDiff(s, a.key, limit, &j)
	must(t, d.run(subtree{b.key, b.size}))
	must(t, j.end())
	return ranges, d
}

// A few nodes, of which each names the same child a hundred times, stand for more leaves than anything
// could go through: Diff did not end, and called nothing that could have ended it.
func TestDiffOfRepeatedNodes(t *testing.T) {
	update2(t, newStore(t, Options{LeafSize: MinLeafSize, Chunking: FastCDC}), func(s *Store) { // counts of parents are not right
		const levels = 6
		leaf := graphLeaf(t, s, make([]byte, 100))
		below, b := []graphNode{leaf}, leaf
		for range levels {
			b = graphParent(t, s, slices.Repeat([]graphNode{b}, s.options.shape().fanout()))
			below = append(below, b)
		}
		other := graphLeaf(t, s, make([]byte, 99))
		mixed := graphParent(t, s, []graphNode{b, other})
		for name, c := range map[string]struct {
			a, b graphNode
			want []Range
		}{
			"nothing of it":         {other, b, []Range{{Length: b.size}}},
			"its leaf":              {leaf, b, nil},
			"a node of it":          {below[1], b, nil},
			"a higher one":          {below[2], b, nil},
			"a node, and more in b": {below[1], mixed, []Range{{Offset: b.size, Length: 99}}},
		} {
			ranges, d := diffGraph(t, s, c.a, c.b, diffLeaves)
			if !slices.Equal(ranges, c.want) || d.taken > 100*diffLeaves {
				t.Errorf("%s: %v, want %v; %d leaves were gone through", name, ranges, c.want, d.taken)
			}
		}
	})
}

// Nodes that share nodes, at all levels, have the ranges that their leaves have.
func TestDiffOfGraphs(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		update2(t, newStore(t, Options{LeafSize: MinLeafSize, Chunking: FastCDC}), func(s *Store) {
			var levels [][]graphNode
			var all []graphNode
			for i := range 3 + rng.IntN(8) {
				all = append(all, graphLeaf(t, s, bytes.Repeat([]byte{byte(i)}, 1+rng.IntN(3))))
			}
			levels = append(levels, slices.Clone(all))
			for range 5 {
				var here []graphNode
				for range 2 + rng.IntN(4) {
					below := levels[len(levels)-1]
					var children []graphNode
					for range 2 + rng.IntN(3) {
						children = append(children, below[rng.IntN(len(below))])
					}
					if rng.IntN(2) == 0 {
						children = append(children, all[rng.IntN(len(all))])
					}
					here = append(here, graphParent(t, s, children))
				}
				levels, all = append(levels, here), append(all, here...)
			}
			for range 60 {
				a, b := all[rng.IntN(len(all))], all[rng.IntN(len(all))]
				in := map[subtree]bool{}
				for _, l := range a.leaves {
					in[l] = true
				}
				var want []Range
				j := rangeJoiner{fn: func(r Range) error { want = append(want, r); return nil }}
				offset := int64(0)
				for _, l := range b.leaves {
					if !in[l] {
						must(t, j.add(Range{Offset: offset, Length: l.size}))
					}
					offset += l.size
				}
				must(t, j.end())
				if got, _ := diffGraph(t, s, a, b, 1+rng.IntN(12)); !slices.Equal(got, want) {
					t.Fatalf("levels %d and %d: %v, want %v", a.key.level, b.key.level, got, want)
				}
			}
		})
	}
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
