package tree

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/page"
)

// A leaf is written as a copy of its page if values of the same length take the place
// of some; else element by element. Both give the same pages, byte by byte.
func TestCopiedLeavesAreEncodedOnes(t *testing.T) {
	const keys = 200
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := newStore(1024)
		edit := NewEdit(s)
		m := model{}
		tr := OpenInline(s, edit, page.Page{})
		put := func(tr *Tree, key string, value []byte, flags uint32) {
			t.Helper()
			if err := tr.Put([]byte(key), value, flags); err != nil {
				t.Fatal(err)
			}
			m[key] = string(value)
		}
		write := func(tr *Tree) {
			t.Helper()
			if err := tr.Merge(); err != nil {
				t.Fatal(err)
			}
			if _, err := tr.Write(DefaultFill); err != nil {
				t.Fatal(err)
			}
		}
		for i := range keys {
			put(&tr, fmt.Sprintf("k%04d", i), bytes.Repeat([]byte{'a'}, i%17), 0)
		}
		write(&tr)
		s.end(t, &tr)

		// The same edits twice, on the same pages, with the same numbers to come.
		var edits []string
		for range 1 + rng.IntN(20) {
			edits = append(edits, fmt.Sprintf("k%04d", rng.IntN(keys)))
		}
		value := make(map[string][]byte)
		for i, k := range edits {
			value[k] = bytes.Repeat([]byte{byte('b' + i)}, len(m[k]))
		}
		first, next, before := maps.Clone(s.runs), s.next, m
		result := func(thick bool) map[page.ID][]byte {
			s.runs, s.next, s.freed, m = maps.Clone(first), next, map[page.ID]bool{}, maps.Clone(before)
			edit.Reset(s)
			tr := Open(s, edit, tr.Root())
			for i, k := range edits {
				n, err := tr.editLeaf([]byte(k))
				if err != nil {
					t.Fatal(err)
				}
				if thick {
					if err := n.thicken(); err != nil {
						t.Fatal(err)
					}
				}
				if i%3 == 0 { // is replaced once more below
					put(&tr, k, bytes.Repeat([]byte{'z'}, len(m[k])), 0)
				}
				put(&tr, k, value[k], 0)
				if got, _, ok, err := tr.Lookup([]byte(k)); err != nil || !ok || !bytes.Equal(got, value[k]) {
					t.Fatalf("seed %d: %s is %q, %t, %v", seed, k, got, ok, err)
				}
				if n.thin.Valid() == thick {
					if thick || len(n.changes) > 0 && len(n.changes) < maxThinChanges {
						t.Fatalf("seed %d: thin: %t, with %d changes", seed, n.thin.Valid(), len(n.changes))
					}
				}
			}
			compare(t, &tr, m)
			write(&tr)
			s.end(t, &tr)
			compare(t, &tr, m)
			return s.runs
		}
		copied, encoded := result(false), result(true)
		if !slices.Equal(slices.Sorted(maps.Keys(copied)), slices.Sorted(maps.Keys(encoded))) {
			t.Fatalf("seed %d: other pages", seed)
		}
		for id, run := range copied {
			if !bytes.Equal(run, encoded[id]) {
				t.Fatalf("seed %d: page %d is another if it is copied", seed, id)
			}
		}
	}
}

// Whatever follows a replaced value in the same leaf keeps it: other lengths, inserts,
// deletes, buckets, as many as there are.
func TestThinLeavesBecomeThick(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 4))
		s := newStore(1024)
		edit := NewEdit(s)
		tr := OpenInline(s, edit, page.Page{})
		m := model{}
		for round := range 6 {
			if round > 0 {
				edit.Reset(s)
				tr = Open(s, edit, tr.Root())
			}
			for range 1 + rng.IntN(30) {
				k := fmt.Sprintf("k%02d", rng.IntN(60))
				switch rng.IntN(8) {
				case 0:
					found, err := tr.Delete([]byte(k))
					if _, want := m[k]; err != nil || found != want {
						t.Fatalf("seed %d: delete %s: %t, %v", seed, k, found, err)
					}
					delete(m, k)
				case 1:
					m[k] = string(bytes.Repeat([]byte{'n'}, rng.IntN(40)))
					if err := tr.Put([]byte(k), []byte(m[k]), 0); err != nil {
						t.Fatal(err)
					}
				default:
					m[k] = string(bytes.Repeat([]byte{byte('a' + rng.IntN(20))}, max(len(m[k]), 1)))
					if ok, err := tr.PutValue([]byte(k), []byte(m[k])); err != nil || !ok {
						t.Fatalf("seed %d: put %s: %t, %v", seed, k, ok, err)
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

// A leaf that is not as we would write it is not copied: its gaps may hold anything,
// and elements that lie upon each other would change together.
func TestDamagedLeavesAreNotCopied(t *testing.T) {
	for name, damage := range map[string]func(run []byte){
		"overlap": func(run []byte) { copy(run[page.HeaderSize+20:], run[page.HeaderSize+4:page.HeaderSize+8]) },
		"order":   func(run []byte) { run[page.HeaderSize+3*page.LeafElementSize+1] = 'x' },
	} {
		s := newStore(1024)
		edit := NewEdit(s)
		tr := OpenInline(s, edit, page.Page{})
		for _, k := range []string{"ka", "kb", "kc"} {
			if err := tr.Put([]byte(k), []byte("value"), 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := tr.Write(DefaultFill); err != nil {
			t.Fatal(err)
		}
		damage(s.runs[tr.Root()])
		edit.Reset(s)
		tr = Open(s, edit, tr.Root())
		err := tr.Put([]byte("kc"), []byte("other"), 0)
		if err == nil {
			_, err = tr.Write(DefaultFill)
		}
		if err == nil {
			p, _ := s.Page(tr.Root())
			if _, ok := p.Packed(); !ok {
				t.Errorf("%s: written again as it was", name)
			}
		}
		t.Logf("%s: %v", name, err)
	}
}
