package tree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/page"
)

// store keeps pages in memory and notices double allocation and double free.
type store struct {
	pageSize int
	next     page.ID
	runs     map[page.ID][]byte
	freed    map[page.ID]bool
}

func newStore(pageSize int) *store {
	return &store{pageSize: pageSize, next: page.FirstDataPage, runs: map[page.ID][]byte{}, freed: map[page.ID]bool{}}
}

func (s *store) PageSize() int { return s.pageSize }

func (s *store) Page(id page.ID) (page.Page, error) {
	run, ok := s.runs[id]
	if !ok {
		return page.Page{}, page.Corruptf(id, "no such page")
	}
	return page.Parse(run, id)
}

func (s *store) Verify(p page.Page) (page.Page, error) { return p, nil }

func (s *store) Allocate(n uint64, _ bool) (page.ID, []byte, error) {
	id := s.next
	s.next += page.ID(n)
	s.runs[id] = bytes.Repeat([]byte{0xEE}, int(n)*s.pageSize)
	return id, s.runs[id], nil
}

func (s *store) Seal(int) {}

func (s *store) Free(id page.ID, n uint64) error {
	run, ok := s.runs[id]
	if !ok || s.freed[id] || len(run) != int(n)*s.pageSize {
		return page.Corruptf(id, "freed twice or never allocated")
	}
	s.freed[id] = true
	return nil
}

// end forgets the pages that the transaction freed and checks that exactly the
// pages of the tree are left.
func (s *store) end(t *testing.T, tr *Tree) {
	t.Helper()
	for id := range s.freed {
		delete(s.runs, id)
	}
	clear(s.freed)
	left := len(s.runs)
	var last []byte
	err := tr.Walk(func(l *Level) error {
		id, _ := l.Base()
		if _, ok := s.runs[id]; !ok {
			t.Fatalf("page %d is in the tree and not in the store", id)
		}
		left--
		if l.Depth > 0 && l.Count() == 0 {
			t.Fatalf("page %d below the root is empty", id)
		}
		if !l.IsLeaf() && l.Count() < 2 {
			t.Fatalf("branch %d has %d children", id, l.Count())
		}
		for i := 0; i < l.Count(); i++ {
			k, err := l.key(i)
			if err != nil {
				return err
			}
			if !l.IsLeaf() {
				c, err := tr.child(&l.place, i)
				if err != nil {
					return err
				}
				if first, _ := c.key(0); !bytes.Equal(first, k) {
					t.Fatalf("branch %d names child %d by %q, its first key is %q", id, i, k, first)
				}
				continue
			}
			if last != nil && bytes.Compare(last, k) >= 0 {
				t.Fatalf("keys out of order: %q, %q", last, k)
			}
			last = k
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Fatalf("%d pages leaked", left)
	}
}

// model is what the tree should hold.
type model map[string]string

func (m model) keys() []string {
	ks := make([]string, 0, len(m))
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}

func compare(t *testing.T, tr *Tree, m model) {
	t.Helper()
	var c Cursor
	c.Init(tr)
	keys := m.keys()
	i := 0
	for e, ok, err := c.First(); ok || err != nil; e, ok, err = c.Next() {
		if err != nil {
			t.Fatal(err)
		}
		if i >= len(keys) || string(e.Key) != keys[i] || string(e.Value) != m[keys[i]] {
			t.Fatalf("forward: element %d is %q, want %q", i, e.Key, keys[i])
		}
		i++
	}
	if i != len(keys) {
		t.Fatalf("forward: %d elements, want %d", i, len(keys))
	}
	for e, ok, err := c.Last(); ok || err != nil; e, ok, err = c.Prev() {
		if err != nil {
			t.Fatal(err)
		}
		i--
		if string(e.Key) != keys[i] {
			t.Fatalf("backward: element %d is %q, want %q", i, e.Key, keys[i])
		}
	}
	if i != 0 {
		t.Fatalf("backward: %d elements missing", i)
	}
}

func TestRandomEdits(t *testing.T) {
	for _, pageSize := range []int{512, 1024, 4096} {
		for seed := uint64(0); seed < 30; seed++ {
			t.Run(fmt.Sprintf("%d/%d", pageSize, seed), func(t *testing.T) { randomEdits(t, pageSize, seed) })
		}
	}
}

func randomEdits(t *testing.T, pageSize int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, uint64(pageSize)))
	s := newStore(pageSize)
	edit := NewEdit(s)
	tr := OpenInline(s, edit, page.Page{})
	m := model{}
	space := 10 << rng.IntN(10)
	key := func() string {
		k := fmt.Sprintf("%d", rng.IntN(space))
		if rng.IntN(20) == 0 {
			k += string(bytes.Repeat([]byte{'x'}, rng.IntN(pageSize)))
		}
		return k
	}
	for tx := 0; tx < 25; tx++ {
		edit.Reset(s)
		shrinking := rng.IntN(3) == 0
		for n := rng.IntN(300); n > 0; n-- {
			k := key()
			if shrinking || rng.IntN(4) == 0 {
				if shrinking && len(m) > 0 {
					k = m.keys()[rng.IntN(len(m))]
				}
				ok, err := tr.Delete([]byte(k))
				if _, want := m[k]; err != nil || ok != want {
					t.Fatalf("delete %q: %v, %v", k, ok, err)
				}
				delete(m, k)
				continue
			}
			v := string(bytes.Repeat([]byte{byte('a' + tx)}, rng.IntN(40)))
			if rng.IntN(30) == 0 {
				v = string(bytes.Repeat([]byte{'V'}, rng.IntN(4*pageSize)))
			}
			if err := tr.Put([]byte(k), []byte(v), 0); err != nil {
				t.Fatal(err)
			}
			m[k] = v
		}
		if rng.IntN(4) == 0 {
			compare(t, &tr, m)
		}
		if !tr.Edited() {
			continue
		}
		if err := tr.Merge(); err != nil {
			t.Fatal(err)
		}
		fill := DefaultFill
		switch rng.IntN(5) {
		case 0, 1:
			fill = rng.Float64()
		case 2:
			fill = WideFill
		case 3:
			fill = DenseFill
		}
		root, err := tr.Write(fill)
		if err != nil {
			t.Fatal(err)
		}
		tr = Open(s, edit, root)
		s.end(t, &tr)
		compare(t, &tr, m)
		for k, v := range m {
			e, ok, err := tr.Get([]byte(k))
			if err != nil || !ok || string(e.Value) != v {
				t.Fatalf("get %q: %v %v", k, ok, err)
			}
		}
	}
}

func deleteAt(c *Cursor) error {
	if ok, err := c.DeleteValue(); err != nil || !ok {
		return fmt.Errorf("not deleted: %w", err)
	}
	return nil
}

// A cursor must go on correctly when the tree is edited under it. In bbolt a
// Delete on a page that was already being edited makes Next skip a key.
func TestCursorAcrossEdits(t *testing.T) {
	for seed := uint64(0); seed < 40; seed++ {
		rng := rand.New(rand.NewPCG(seed, 7))
		s := newStore(512)
		edit := NewEdit(s)
		tr := OpenInline(s, edit, page.Page{})
		m := model{}
		for i := 0; i < 500; i++ {
			k := fmt.Sprintf("%04d", rng.IntN(2000))
			m[k] = "v"
			if err := tr.Put([]byte(k), []byte("v"), 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := tr.Merge(); err != nil {
			t.Fatal(err)
		}
		if _, err := tr.Write(DefaultFill); err != nil {
			t.Fatal(err)
		}
		var c Cursor
		c.Init(&tr)
		e, ok, err := c.First()
		fresh := map[string]bool{}   // put since First or a turn: passed over
		last, lastFresh := "", false // deleted last: put again it is what it was
		moved := 0                   // forward or, negative, back
		for step := 0; ok && step < 3000; step++ {
			if err != nil {
				t.Fatal(err)
			}
			at := string(e.Key)
			switch rng.IntN(4) {
			case 0:
				if err := deleteAt(&c); err != nil {
					t.Fatal(err)
				}
				last, lastFresh = at, fresh[at]
				delete(m, at)
			case 1:
				k := fmt.Sprintf("%04d", rng.IntN(2000))
				if _, ok := m[k]; !ok {
					fresh[k] = k != last || lastFresh
				}
				m[k] = "w"
				if err := tr.Put([]byte(k), []byte("w"), 0); err != nil {
					t.Fatal(err)
				}
			}
			move := 1
			if rng.IntN(3) == 0 {
				move = -1
			}
			if move == -moved {
				clear(fresh)
				lastFresh = false
			}
			moved = move
			keys := slices.DeleteFunc(m.keys(), func(k string) bool { return fresh[k] })
			i, found := slices.BinarySearch(keys, at)
			if move < 0 {
				e, ok, err = c.Prev()
				i--
			} else {
				e, ok, err = c.Next()
				if found {
					i++
				}
			}
			if want := i >= 0 && i < len(keys); want != ok || ok && string(e.Key) != keys[i] {
				t.Fatalf("seed %d: from %q: got %q %v, want index %d of %d", seed, at, e.Key, ok, i, len(keys))
			}
		}
	}
}

func TestGetDoesNotAllocate(t *testing.T) {
	s := newStore(512)
	tr := OpenInline(s, NewEdit(s), page.Page{})
	for i := 0; i < 1000; i++ {
		if err := tr.Put([]byte(fmt.Sprint(i)), []byte("v"), 0); err != nil {
			t.Fatal(err)
		}
	}
	root, err := tr.Write(DefaultFill)
	if err != nil {
		t.Fatal(err)
	}
	tr = Open(s, nil, root)
	key := []byte("777")
	if n := testing.AllocsPerRun(100, func() {
		if _, ok, err := tr.Get(key); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}); n != 0 {
		t.Fatalf("Get allocates %v times", n)
	}
}

// Appended keys fill their pages: bbolt leaves them half full.
func TestAppendFillsPages(t *testing.T) {
	s := newStore(4096)
	edit := NewEdit(s)
	tr := OpenInline(s, edit, page.Page{})
	bytesPut := 0
	for tx := 0; tx < 20; tx++ {
		edit.Reset(s)
		for i := 0; i < 1000; i++ {
			k := fmt.Appendf(nil, "key%08d", tx*1000+i)
			bytesPut += page.LeafSize(k, k)
			if err := tr.Put(k, k, 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := tr.Write(DefaultFill); err != nil {
			t.Fatal(err)
		}
		s.end(t, &tr)
	}
	if have := len(s.runs) * 4096; float64(have) > 1.06*float64(bytesPut) {
		t.Fatalf("%d bytes of pages for %d bytes of elements", have, bytesPut)
	}
}

func TestHostileTrees(t *testing.T) {
	branch := func(s *store, id page.ID, children ...page.ID) {
		buf := make([]byte, s.pageSize)
		e := page.NewBranch(buf, id, len(children), 0)
		for i, c := range children {
			e.Branch([]byte{byte('a' + i)}, c)
		}
		e.Finish(true)
		s.runs[id] = buf
	}
	leaf := func(s *store, id page.ID, keys ...string) {
		buf := make([]byte, s.pageSize)
		e := page.NewLeaf(buf, id, len(keys), 0)
		for _, k := range keys {
			e.Leaf(0, []byte(k), nil)
		}
		e.Finish(true)
		s.runs[id] = buf
	}
	cases := map[string]func(*store){
		"self cycle":    func(s *store) { branch(s, 2, 2, 2) },
		"long cycle":    func(s *store) { branch(s, 2, 3, 3); branch(s, 3, 4); branch(s, 4, 2, 3) },
		"shared leaf":   func(s *store) { branch(s, 2, 3, 3, 3); leaf(s, 3, "a", "b") },
		"unordered":     func(s *store) { branch(s, 2, 3, 3); leaf(s, 3, "b", "a") },
		"empty branch":  func(s *store) { branch(s, 2) },
		"missing child": func(s *store) { branch(s, 2, 9) },
		"doubling": func(s *store) {
			for id := page.ID(2); id < 50; id++ {
				branch(s, id, id+1, id+1)
			}
			leaf(s, 50)
		},
	}
	for name, make := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStore(512)
			make(s)
			tr := Open(s, NewEdit(s), 2)
			var c Cursor
			c.Init(&tr)
			var errF, errB error
			n := 0
			for _, ok, err := c.First(); ok || err != nil; _, ok, err = c.Next() {
				if errF = err; err != nil {
					break
				}
				if n++; n > 100_000 {
					t.Fatal("endless")
				}
			}
			for _, ok, err := c.Last(); ok || err != nil; _, ok, err = c.Prev() {
				if errB = err; err != nil {
					break
				}
				if n++; n > 100_000 {
					t.Fatal("endless")
				}
			}
			if errF == nil || errB == nil {
				t.Fatalf("errors: forward %v, backward %v", errF, errB)
			}
			_, _, _ = tr.Get([]byte("b"))
			if _, err := tr.Delete([]byte("a")); err != nil {
				return
			}
			if err := tr.Put([]byte("a"), nil, 0); err != nil {
				return
			}
			if err := tr.Merge(); err != nil {
				return
			}
			_, _ = tr.Write(DefaultFill)
		})
	}
}
