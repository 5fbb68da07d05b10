package tree

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/page"
)

// A leaf to which a few elements were added is written from its page and them; it gives
// the same pages as one whose elements are all in memory, byte by byte, and in between
// shows the same to searches and cursors.
func TestAddedToLeaves(t *testing.T) {
	stayed, long := 0, 0
	for seed := range uint64(80) {
		rng := rand.New(rand.NewPCG(seed, 5))
		s := newStore(1024)
		edit := NewEdit(s)
		m := model{}
		tr := OpenInline(s, edit, page.Page{})
		put := func(tr *Tree, key, value string) {
			t.Helper()
			if err := tr.Put([]byte(key), []byte(value), 0); err != nil {
				t.Fatal(err)
			}
			m[key] = value
		}
		write := func(tr *Tree) {
			t.Helper()
			if err := tr.Merge(); err != nil {
				t.Fatal(err)
			}
			if _, err := tr.Write(DefaultFill); err != nil {
				t.Fatal(err)
			}
			s.end(t, tr)
			compare(t, tr, m)
		}
		for i := range 200 { // half of them in disorder, so that leaves have room
			put(&tr, fmt.Sprintf("k%04d", i*7919%200*10), string(bytes.Repeat([]byte{'a'}, i%17)))
		}
		write(&tr)

		type op struct {
			kind       int
			key, value string
		}
		var ops []op
		most := 60
		if seed%2 == 1 {
			most = 400
		}
		for range 1 + rng.IntN(most) {
			ops = append(ops, op{rng.IntN(10), fmt.Sprintf("k%04d", rng.IntN(2100)), string(bytes.Repeat([]byte{byte('b' + len(ops)%20)}, rng.IntN(20)))})
		}
		if seed%2 == 1 { // in their order, so that they are many in a thin leaf
			slices.SortStableFunc(ops, func(a, b op) int { return cmp.Compare(a.key, b.key) })
			for i := range ops {
				ops[i].kind = max(ops[i].kind, rng.IntN(40)) // hardly any deletes
				if k := []byte(ops[i].key); k[4] == '0' && rng.IntN(20) > 0 {
					k[4]++ // hardly any that are there
					ops[i].key = string(k)
				}
			}
		}
		first, next, before, root := maps.Clone(s.runs), s.next, m, tr.Root()
		result := func(thick bool) map[page.ID][]byte {
			s.runs, s.next, s.freed, m = maps.Clone(first), next, map[page.ID]bool{}, maps.Clone(before)
			edit.Reset(s)
			tr := Open(s, edit, root)
			for i, o := range ops {
				n, err := tr.editLeaf([]byte(o.key))
				if err == nil && thick {
					err = n.thicken()
				}
				if err != nil {
					t.Fatal(err)
				}
				switch o.kind {
				case 0:
					found, err := tr.Delete([]byte(o.key))
					if _, want := m[o.key]; err != nil || found != want {
						t.Fatalf("seed %d: delete %s: %t, %v", seed, o.key, found, err)
					}
					delete(m, o.key)
				case 1, 2: // one that is there, or was added
					keys := slices.Sorted(maps.Keys(m))
					i, _ := slices.BinarySearch(keys, o.key)
					k := keys[min(i, len(keys)-1)]
					put(&tr, k, string(bytes.Repeat([]byte{'z'}, len(m[k])+o.kind-1)))
				default:
					put(&tr, o.key, o.value)
				}
				if !thick && n.added > 0 {
					stayed++
					if len(n.changes) > maxThinChanges {
						long++
					}
				}
				v, _, ok, err := tr.Lookup([]byte(o.key))
				if want, there := m[o.key]; err != nil || ok != there || string(v) != want {
					t.Fatalf("seed %d: %s is %q, %t, %v", seed, o.key, v, ok, err)
				}
				if seed%2 == 0 || i%20 == 0 {
					compare(t, &tr, m)
				}
			}
			write(&tr)
			return s.runs
		}
		thin, thick := result(false), result(true)
		if !slices.Equal(slices.Sorted(maps.Keys(thin)), slices.Sorted(maps.Keys(thick))) {
			t.Fatalf("seed %d: other pages", seed)
		}
		for id, run := range thin {
			if !bytes.Equal(run, thick[id]) {
				t.Fatalf("seed %d: page %d is another if its elements are in memory", seed, id)
			}
		}
	}
	if stayed < 200 || long < 200 {
		t.Errorf("%d leaves had new elements and were thin, %d many", stayed, long)
	}
}

// Keys that come in order are found and put from where the one before was, whatever
// happens to the tree in between.
func TestFinger(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 6))
		s := newStore(512)
		edit := NewEdit(s)
		tr := OpenInline(s, edit, page.Page{})
		m := model{}
		for round := range 4 {
			if round > 0 {
				edit.Reset(s)
				tr = Open(s, edit, tr.Root())
			}
			at := 0
			for range 400 {
				if at += 1 + rng.IntN(9); rng.IntN(20) == 0 {
					at = rng.IntN(1500)
				}
				k := fmt.Sprintf("k%05d", at)
				switch rng.IntN(6) {
				case 0, 1:
					v, _, ok, err := tr.Lookup([]byte(k))
					if want, there := m[k]; err != nil || ok != there || string(v) != want {
						t.Fatalf("seed %d: %s is %q, %t, %v", seed, k, v, ok, err)
					}
					// What was found is not sought again when it is set, unless something has changed.
					near := fmt.Sprintf("k%05d", max(0, at-2+rng.IntN(5)))
					switch rng.IntN(4) {
					case 0:
						_, err = tr.Delete([]byte(near))
						delete(m, near)
					case 1:
						m[near] = string(bytes.Repeat([]byte{'n'}, rng.IntN(60)))
						err = tr.Put([]byte(near), []byte(m[near]), 0)
					case 2:
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					m[k] = string(bytes.Repeat([]byte{'w'}, rng.IntN(60)))
					if err := tr.Put([]byte(k), []byte(m[k]), 0); err != nil {
						t.Fatal(err)
					}
				case 2:
					found, err := tr.Delete([]byte(k))
					if _, want := m[k]; err != nil || found != want {
						t.Fatalf("seed %d: delete %s: %t, %v", seed, k, found, err)
					}
					delete(m, k)
				default:
					m[k] = string(bytes.Repeat([]byte{'v'}, rng.IntN(60)))
					if err := tr.Put([]byte(k), []byte(m[k]), 0); err != nil {
						t.Fatal(err)
					}
				}
				if rng.IntN(40) == 0 && len(m) > 0 {
					if err := tr.Pack([]byte(k), 1, 3, 0.9); err != nil {
						t.Fatal(err)
					}
				}
			}
			compare(t, &tr, m)
			if err := tr.Merge(); err != nil {
				t.Fatal(err)
			}
			if _, err := tr.Write(DefaultFill); err != nil {
				t.Fatal(err)
			}
			s.end(t, &tr)
			compare(t, &tr, m)
		}
	}
}

// The leaf of the last search is split in memory, and joined with others, all of them
// nodes: what is searched next is not sought there.
func TestFingerIsLifted(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 7))
		s := newStore(512)
		tr := OpenInline(s, NewEdit(s), page.Page{})
		m := model{}
		key := func() string { return fmt.Sprintf("k%05d", rng.IntN(5*maxNodeItems)) }
		for i := range 4 * maxNodeItems {
			k := key()
			m[k] = fmt.Sprint(i)
			if err := tr.Put([]byte(k), []byte(m[k]), 0); err != nil {
				t.Fatal(err)
			}
			if tr.node.leaf {
				continue
			}
			if rng.IntN(100) == 0 {
				if err := tr.Pack([]byte(key()), 1, 2, 0.9); err != nil {
					t.Fatal(err)
				}
			}
			k = key()
			v, _, ok, err := tr.Lookup([]byte(k))
			if want, there := m[k]; err != nil || ok != there || string(v) != want {
				t.Fatalf("seed %d: %s is %q, %t, %v", seed, k, v, ok, err)
			}
		}
		compare(t, &tr, m)
	}
}
