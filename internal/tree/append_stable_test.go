package tree

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"holdfast/internal/page"
)

// shape is where the elements of a tree are.
func shape(t *testing.T, tr *Tree) string {
	t.Helper()
	var b strings.Builder
	err := tr.Walk(func(l *Level) error {
		_, pages := l.Base()
		fmt.Fprintf(&b, "depth %d, %d pages:", l.Depth, pages)
		for i := range l.Count() {
			k, err := l.key(i)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", k)
			if l.IsLeaf() {
				e, err := l.Element(i)
				if err != nil {
					return err
				}
				fmt.Fprintf(&b, "=%d:%x", e.Flags, e.Value)
			}
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// elements are some, in order, of sizes by which pages are divided in all ways.
func elements(rng *rand.Rand, pageSize int) []item {
	sizes := []int{0, pageSize / 8, pageSize / 3, pageSize - page.SealSize - page.HeaderSize - page.LeafElementSize - 4, pageSize, 3 * pageSize}
	keys := []int{4, 4, 4, 40, pageSize / 2, 2 * pageSize}
	var items []item
	n := rng.IntN(100) // so that many end where pages have just been written
	if rng.IntN(30) == 0 {
		n = rng.IntN(3000)
	}
	keyMax, sizeMax, same := 1+rng.IntN(len(keys)), 1+rng.IntN(len(sizes)), rng.IntN(2) == 0
	for i := range n {
		key := fmt.Appendf(nil, "%04x", i)
		key = append(key, make([]byte, rng.IntN(keys[rng.IntN(keyMax)]-3))...)
		size := sizes[sizeMax-1]
		if !same {
			size = rng.IntN(sizes[rng.IntN(sizeMax)] + 1)
		}
		items = append(items, item{key: key, value: bytes.Repeat([]byte{byte(i)}, size), flags: uint32(i % 2)})
	}
	return items
}

// emptied makes tr an empty tree that something was removed from.
func emptied(t *testing.T, tr *Tree) {
	t.Helper()
	if err := tr.Put([]byte("k"), nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Delete([]byte("k")); err != nil {
		t.Fatal(err)
	}
}

// What AppendStable makes is what putting in order makes, no page is given up for it, and few are in memory.
func TestAppendStableDividesAsPutting(t *testing.T) {
	for seed := range uint64(600) {
		rng := rand.New(rand.NewPCG(seed, 1))
		pageSize := 512 << rng.IntN(3)
		fill := []float64{0.9, DefaultFill, 0.2, 1}[rng.IntN(4)]
		items := elements(rng, pageSize)
		put, s := newStore(pageSize), newAppendStore(pageSize)
		want := OpenInline(put, NewEdit(put), page.Page{})
		edit := NewEdit(s)
		tr := OpenInline(s, edit, page.Page{})
		if len(items) == 0 {
			emptied(t, &want)
			emptied(t, &tr)
		}
		for _, it := range items {
			if err := want.Put(it.key, it.value, it.flags); err != nil {
				t.Fatal(err)
			}
			if err := tr.AppendStable(s, fill, it.key, it.value, it.flags); err != nil {
				t.Fatal(err)
			}
			for _, n := range append([]*node{tr.edge.leaf}, tr.edge.path...) {
				if most := 2*batchPages*pageSize + 8*(len(it.key)+len(it.value)); n.size > most {
					t.Fatalf("%d bytes are held back", n.size)
				}
			}
		}
		size, ok := tr.InlineSize(pageSize / 4)
		wantSize, wantOK := want.InlineSize(pageSize / 4)
		if size != wantSize || ok != wantOK {
			t.Errorf("inline: %d, %v; want %d, %v", size, ok, wantSize, wantOK)
		}
		if _, err := want.Write(fill); err != nil {
			t.Fatal(err)
		}
		if err := tr.Spill(s, fill, 0); err != nil {
			t.Fatal(err)
		}
		if got, want := shape(t, &tr), shape(t, &want); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		if len(s.freed) > 0 || int64(s.next-page.FirstDataPage) != edit.Stats.PagesFilled {
			t.Errorf("%d pages freed, %d allocated, %d counted", len(s.freed), s.next-page.FirstDataPage, edit.Stats.PagesFilled)
		}
		s.end(t, &tr)
		if t.Failed() {
			t.Fatalf("%d: %d elements in pages of %d, fill %v", seed, len(items), pageSize, fill)
		}
	}
}

// A key that is not after the one before is refused wherever that is.
func TestAppendStableRefusesOrder(t *testing.T) {
	for _, n := range []int{1, 5, 1000} {
		for _, key := range []string{"0000", fmt.Sprintf("%04d", n-1)} {
			s := newAppendStore(512)
			tr := OpenInline(s, NewEdit(s), page.Page{})
			for i := range n {
				if err := tr.AppendStable(s, 0.9, fmt.Appendf(nil, "%04d", i), make([]byte, 20), 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := tr.AppendStable(s, 0.9, []byte(key), nil, 0); !errors.Is(err, ErrUnordered) {
				t.Errorf("%s after %d keys: %v", key, n, err)
			}
		}
	}
}

// failing is a store that has room for so many pages.
type failing struct {
	*appendStore
	room int
}

var errNoRoom = errors.New("no room")

func (f *failing) Allocate(n uint64, hot bool) (page.ID, []byte, error) {
	if f.room -= int(n); f.room < 0 {
		return 0, nil, errNoRoom
	}
	return f.appendStore.Allocate(n, hot)
}

// An error of the Appender comes out, whichever page it is.
func TestAppendStableFails(t *testing.T) {
	for room := 0; ; room++ {
		s := &failing{newAppendStore(512), room}
		tr := OpenInline(s, NewEdit(s), page.Page{})
		var err error
		for i := 0; i < 500 && err == nil; i++ {
			err = tr.AppendStable(s, 0.9, fmt.Appendf(nil, "%04d", i), make([]byte, 30), 0)
		}
		if err == nil {
			err = tr.Spill(s, 0.9, 0)
		}
		if err == nil && room > 50 {
			return
		}
		if !errors.Is(err, errNoRoom) {
			t.Fatalf("%d pages: %v", room, err)
		}
	}
}

// Branches of which pages were made while keys were appended are edited like others afterwards, and branches with
// edited children are not among them.
func TestAppendWritesBranches(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 8))
		s := newAppendStore(512)
		edit := NewEdit(s)
		tr := OpenInline(s, edit, page.Page{})
		m := model{}
		value := func() []byte { return bytes.Repeat([]byte{'v'}, rng.IntN(500)) }
		for i := range 4000 {
			key := fmt.Appendf(nil, "%06d", i)
			v := value()
			if err := tr.Append(s, DefaultFill, key, v); err != nil {
				t.Fatal(err)
			}
			m[string(key)] = string(v)
			if rng.IntN(300*(1+int(seed%5))) > 0 {
				continue
			}
			key, v = fmt.Appendf(nil, "%06d", rng.IntN(i+1)), value()
			if err := tr.Put(key, v, 0); err != nil {
				t.Fatal(err)
			}
			m[string(key)] = string(v)
			key = fmt.Appendf(nil, "%06d", rng.IntN(i+1))
			if _, err := tr.Delete(key); err != nil {
				t.Fatal(err)
			}
			delete(m, string(key))
		}
		if !tr.spilled {
			t.Error("no page of a branch was made")
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
