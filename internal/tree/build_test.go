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

// What a Builder makes is what appending to a tree makes, and no page is given up for it.
func TestBuilderDividesAsAppending(t *testing.T) {
	var b Builder // which is used again and again
	for seed := range uint64(600) {
		rng := rand.New(rand.NewPCG(seed, 1))
		pageSize := 512 << rng.IntN(3)
		fill := []float64{0.9, DefaultFill, 0.2, 1}[rng.IntN(4)]
		items := elements(rng, pageSize)
		s, s2 := newStore(pageSize), newStore(pageSize)
		tr := OpenInline(s, NewEdit(s), page.Page{})
		edit := NewEdit(s2)
		b.Begin(edit, s2, fill)
		if len(items) == 0 { // an empty tree is one that something was removed from
			if err := tr.Put([]byte("k"), nil, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := tr.Delete([]byte("k")); err != nil {
				t.Fatal(err)
			}
		}
		for _, it := range items {
			if err := tr.Put(it.key, it.value, it.flags); err != nil {
				t.Fatal(err)
			}
			if err := b.Append(it.key, it.value, it.flags); err != nil {
				t.Fatal(err)
			}
			if most := 2*batchPages*pageSize + 8*len(it.value); b.levels[0].size > most {
				t.Fatalf("%d bytes are held back", b.levels[0].size)
			}
		}
		size, ok := b.InlineSize(pageSize / 4)
		wantSize, want := tr.InlineSize(pageSize / 4)
		if size != wantSize || ok != want {
			t.Errorf("inline: %d, %v; want %d, %v", size, ok, wantSize, want)
		}
		if _, err := tr.Write(fill); err != nil {
			t.Fatal(err)
		}
		root, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		built := Open(s2, nil, root)
		if got, want := shape(t, &built), shape(t, &tr); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		if len(s2.freed) > 0 || int64(s2.next-page.FirstDataPage) != edit.Stats.PagesFilled {
			t.Errorf("%d pages freed, %d allocated, %d counted", len(s2.freed), s2.next-page.FirstDataPage, edit.Stats.PagesFilled)
		}
		s2.end(t, &built)
		if t.Failed() {
			t.Fatalf("%d: %d elements in pages of %d, fill %v", seed, len(items), pageSize, fill)
		}
	}
}

// A key that is not behind the one before is refused wherever that is.
func TestBuilderRefusesOrder(t *testing.T) {
	for _, n := range []int{1, 5, 1000} {
		for _, key := range []string{"0000", fmt.Sprintf("%04d", n-1)} {
			var b Builder
			s := newStore(512)
			b.Begin(NewEdit(s), s, 0.9)
			for i := range n {
				if err := b.Append(fmt.Appendf(nil, "%04d", i), make([]byte, 20), 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Append([]byte(key), nil, 0); !errors.Is(err, ErrUnordered) {
				t.Errorf("%s behind %d keys: %v", key, n, err)
			}
		}
	}
}

// failing is a store that has room for so many pages.
type failing struct {
	*store
	room int
}

var errNoRoom = errors.New("no room")

func (f *failing) Allocate(n uint64, hot bool) (page.ID, []byte, error) {
	if f.room -= int(n); f.room < 0 {
		return 0, nil, errNoRoom
	}
	return f.store.Allocate(n, hot)
}

// An error of the Writer comes out, whichever page it is.
func TestBuilderFails(t *testing.T) {
	for room := 0; ; room++ {
		s := &failing{newStore(512), room}
		var b Builder
		b.Begin(NewEdit(s), s, 0.9)
		var err error
		for i := 0; i < 500 && err == nil; i++ {
			err = b.Append(fmt.Appendf(nil, "%04d", i), make([]byte, 30), 0)
		}
		if err == nil {
			_, err = b.Finish()
		}
		if err == nil && room > 50 {
			return
		}
		if !errors.Is(err, errNoRoom) {
			t.Fatalf("%d pages: %v", room, err)
		}
	}
}
