package tree

import (
	"fmt"
	"slices"
	"testing"

	"holdfast/internal/page"
)

// tracked notes which pages are read, and which were announced.
type tracked struct {
	*store
	log []string
}

func (s *tracked) Page(id page.ID) (page.Page, error) {
	s.log = append(s.log, fmt.Sprint("read ", id))
	return s.store.Page(id)
}

// LookupUnsealed finds what Lookup finds, and announces each page below the root before it reads it.
func TestLookupUnsealedAhead(t *testing.T) {
	for _, keys := range []int{0, 1, 20, 3000} {
		s := newStore(512)
		tr := OpenInline(s, NewEdit(s), page.Page{})
		for i := range keys {
			if err := tr.Put(fmt.Appendf(nil, "%05d", 2*i), fmt.Append(nil, i), uint32(i%3)); err != nil {
				t.Fatal(err)
			}
		}
		root, err := tr.Write(DefaultFill)
		if err != nil {
			t.Fatal(err)
		}
		for root, deep := range map[page.ID]bool{root: keys > 1000, 1_000_000: false} { // of which there is none
			in := &tracked{store: s}
			tr := Open(in, nil, root)
			for i := -1; i < 2*keys+1; i++ {
				key := fmt.Appendf(nil, "%05d", i)
				v, flags, ok, err := tr.Lookup(key)
				in.log = nil
				v2, flags2, ok2, err2 := tr.LookupUnsealed(key, func(id page.ID) { in.log = append(in.log, fmt.Sprint("ahead ", id)) })
				if string(v) != string(v2) || flags != flags2 || ok != ok2 || fmt.Sprint(err) != fmt.Sprint(err2) {
					t.Fatalf("%s of %d: %q %d %t %v, want %q %d %t %v", key, keys, v2, flags2, ok2, err2, v, flags, ok, err)
				}
				if deep && len(in.log) < 3 {
					t.Fatalf("%s: %q", key, in.log)
				}
				for n := 1; n < len(in.log); n += 2 {
					if in.log[n][len("ahead"):] != in.log[n+1][len("read"):] {
						t.Fatalf("%s: %q", key, in.log)
					}
				}
			}
		}
	}
}

// What is damaged ends as in Lookup.
func TestLookupUnsealedHostile(t *testing.T) {
	for name, children := range map[string][]page.ID{"cycle": {2, 2}, "empty": {}, "missing": {9, 9}} {
		s := newStore(512)
		buf := make([]byte, 512)
		e := page.NewBranch(buf, 2, len(children), 0)
		for i, c := range children {
			e.Branch([]byte{byte('a' + i)}, c)
		}
		e.Finish(true)
		s.runs[2] = buf
		tr := Open(s, nil, 2)
		_, _, _, want := tr.Lookup([]byte("b"))
		ids := []page.ID{}
		_, _, ok, err := tr.LookupUnsealed([]byte("b"), func(id page.ID) { ids = append(ids, id) })
		if ok || err == nil || fmt.Sprint(err) != fmt.Sprint(want) || !slices.Equal(ids, slices.Repeat(children[:min(len(children), 1)], len(ids))) {
			t.Errorf("%s: %v, want %v; %d", name, err, want, ids)
		}
	}
}
