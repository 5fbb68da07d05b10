package tree

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"holdfast/internal/page"
)

// appendStore is a store that is an Appender.
type appendStore struct {
	*store
	own map[page.ID]bool
}

func newAppendStore(pageSize int) *appendStore {
	return &appendStore{newStore(pageSize), map[page.ID]bool{}}
}

func (s *appendStore) Allocate(n uint64, hot bool) (page.ID, []byte, error) {
	id, buf, err := s.store.Allocate(n, hot)
	s.own[id] = true
	return id, buf, err
}

func (s *appendStore) WriteLeaf(key, value []byte, _ bool) (page.ID, uint64, error) {
	pages := page.LoneLeafPages(key, value, s.pageSize)
	id, buf, err := s.Allocate(pages, false)
	enc := page.NewLeaf(buf, id, 1, uint32(pages-1))
	enc.Leaf(0, key, value)
	enc.End()
	return id, pages, err
}

func (s *appendStore) Owns(id page.ID) bool            { return s.own[id] }
func (s *appendStore) Quietly(read func() error) error { return read() }

// leaves gives the pages of each leaf.
func leaves(t *testing.T, tr *Tree) (pages []uint64) {
	t.Helper()
	err := tr.Walk(func(l *Level) error {
		if _, n := l.Base(); l.IsLeaf() {
			pages = append(pages, n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// What is appended fills as many pages as what is put in order, values of a page or more
// are alone, and of branches there are as many as there must be.
func TestAppendLayout(t *testing.T) {
	for _, size := range []int{0, 10, 100, 200, 470} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			made := [2][]uint64{}
			for i, appends := range []bool{false, true} {
				s := newAppendStore(512)
				edit := NewEdit(s)
				tr := Open(s, edit, 0)
				m := model{}
				for k := range 3000 {
					key, value := fmt.Appendf(nil, "%08d", k), bytes.Repeat([]byte("v"), size)
					var err error
					if m[string(key)] = string(value); appends {
						err = tr.Append(s, DefaultFill, key, value)
						clear(key)
						clear(value)
					} else {
						err = tr.Put(key, value, 0)
					}
					if err != nil {
						t.Fatal(err)
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
				made[i] = leaves(t, &tr)
			}
			if put, appended := len(made[0]), len(made[1]); appended > put+1 {
				t.Errorf("%d leaves, and %d if all is put", appended, put)
			}
		})
	}
}

// A key that was not there when it was looked up, and then appended, is there when it is set.
func TestAppendBehindLookup(t *testing.T) {
	s := newAppendStore(512)
	tr := Open(s, NewEdit(s), 0)
	m := model{}
	for i := range 200 {
		key, value := fmt.Sprintf("%08d", i), fmt.Sprint(i)
		_, _, ok, err := tr.Lookup([]byte(key))
		if err == nil && !ok {
			err = tr.Append(s, DefaultFill, []byte(key), []byte(value))
		}
		if m[key] = value; i%3 == 0 {
			m[key] = "again"
			err = errors.Join(err, tr.Put([]byte(key), []byte(m[key]), 0))
		}
		if ok || err != nil {
			t.Fatal(ok, err)
		}
		compare(t, &tr, m)
	}
}

// More large values than a branch in memory has: it is split at its end.
func TestAppendManyLeaves(t *testing.T) {
	const n = 2*maxAppendItems + 100
	s := newAppendStore(512)
	tr := Open(s, NewEdit(s), 0)
	value := make([]byte, 980) // two pages
	for i := range n {
		if err := tr.Append(s, DefaultFill, fmt.Appendf(nil, "%08d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{0, 1, maxAppendItems - 2, maxAppendItems, n - 1} {
		if v, _, ok, err := tr.Lookup(fmt.Appendf(nil, "%08d", i)); !ok || len(v) != len(value) || err != nil {
			t.Errorf("element %d: %t %v", i, ok, err)
		}
	}
	if err := tr.Merge(); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Write(DefaultFill); err != nil {
		t.Fatal(err)
	}
	s.end(t, &tr)
	if got := len(leaves(t, &tr)); got != n {
		t.Errorf("%d leaves, want %d", got, n)
	}
}

// Leaves and branches at the edge that were emptied do not hide what is appended.
func TestAppendBehindEmptied(t *testing.T) {
	for _, kept := range []int{0, 1, 500, 1999} {
		s := newAppendStore(512)
		tr := Open(s, NewEdit(s), 0)
		m := model{}
		key := func(i int) []byte { return fmt.Appendf(nil, "%08d", i) }
		for i := range 2000 {
			if err := tr.Append(s, DefaultFill, key(2*i), make([]byte, i%600)); err != nil {
				t.Fatal(err)
			}
			m[string(key(2*i))] = string(make([]byte, i%600))
		}
		for i := 1999; i >= kept; i-- {
			if _, err := tr.Delete(key(2 * i)); err != nil {
				t.Fatal(err)
			}
			delete(m, string(key(2*i)))
		}
		for i := range 300 {
			if err := tr.Append(s, DefaultFill, key(2*kept+i), make([]byte, i*7%600)); err != nil {
				t.Fatal(err)
			}
			m[string(key(2*kept+i))] = string(make([]byte, i*7%600))
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
		if err := tr.Append(s, DefaultFill, key(0), nil); err != ErrUnordered {
			t.Error(err)
		}
	}
}

// Large values that would leave much of their pages empty share them.
func TestAppendShares(t *testing.T) {
	for _, c := range []struct{ value, pages int }{
		{3*512 - 40, 3}, // whole pages
		{3*512 - 40 - 192, 3},
		{2*512 + 100, 0}, // a quarter would be empty
	} {
		s := newAppendStore(512)
		tr := Open(s, NewEdit(s), 0)
		const n = 100
		for i := range n {
			if err := tr.Append(s, DefaultFill, fmt.Appendf(nil, "%08d", i), make([]byte, c.value)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tr.Merge(); err != nil {
			t.Fatal(err)
		}
		if _, err := tr.Write(DefaultFill); err != nil {
			t.Fatal(err)
		}
		s.end(t, &tr)
		pages := 0
		for _, p := range leaves(t, &tr) {
			pages += int(p)
		}
		if c.pages > 0 && pages != n*c.pages {
			t.Errorf("%d values of %d bytes take %d pages", n, c.value, pages)
		}
		if used := n * (c.value + 24); c.pages == 0 && pages*512 > used+used/12 {
			t.Errorf("%d values of %d bytes take %d bytes of pages", n, c.value, pages*512)
		}
	}
}
