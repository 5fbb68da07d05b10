package salvage

import (
	"context"
	"errors"
	"io"

	"holdfast/internal/page"
)

// Looked is what a quick look at a file has found.
type Looked struct {
	Pages  uint64 // that were read, but for the metas
	All    page.ID
	Free   string // what tells the free pages: "" for nothing
	Faults []Damage
	Notes  []string // what is odd, and what a crash may leave too
}

// Quick looks at what is read in no time on a file of any size: the metas and what stands
// after them, what is recorded of free pages, the length of the file, and the pages of
// the root bucket from its root to its first leaf.
func Quick(r io.ReaderAt, size int64) (*Looked, error) {
	ctx := context.Background() // it is short
	s := &salvage{ctx: ctx, source: source{r: r, size: size}}
	ps, whole, _ := page.FindPageSize(r) // as an opening does
	if !whole {
		var err error
		if ps, err = findPageSize(ctx, r, size); err != nil {
			return nil, err
		}
	}
	s.pageSize = ps
	look := &Looked{}
	s.pages = page.ID(size / s.pageSize)
	states, notes, mended := s.states()
	look.Notes = append(notes, mended...)
	if len(states) == 0 || states[0].unsure || len(mended) == 2 {
		look.Faults = append(look.Faults, Damage{0, "neither of the two meta pages is whole"})
		return look, nil
	}
	st := states[0]
	if look.All = st.highWater; st.highWater > s.pages {
		look.Faults = append(look.Faults, Damage{page.ID(st.slot),
			notef("the file has %d pages of %d: it was cut short", s.pages, st.highWater)})
	}
	s.limit(st.highWater)
	fault := func(err error) {
		if c := (*page.CorruptError)(nil); errors.As(err, &c) {
			look.Faults = append(look.Faults, Damage{c.Page, c.Reason})
		} else if err != nil {
			look.Faults = append(look.Faults, Damage{page.ID(st.slot), err.Error()})
		}
	}
	if look.Free = st.how; st.free != nil {
		fault(st.free(&s.source))
	}
	if s.is(st.root, markFree) {
		fault(page.Corruptf(st.root, "the root page is recorded as free"))
	}
	fault(s.firstLeaf(st.root))
	look.Pages = s.read
	return look, nil
}

// firstLeaf goes from page id down to the first leaf.
func (s *salvage) firstLeaf(id page.ID) error {
	for range maxDepth {
		p, err := s.load(id)
		if err != nil {
			return err
		}
		if n := len(sound(p, bounds{})); n < p.Count() {
			return page.Corruptf(id, "%d of its %d elements are damaged", p.Count()-n, p.Count())
		}
		if p.IsLeaf() {
			return nil
		}
		if p.Count() == 0 {
			return page.Corruptf(id, "a branch page without an element")
		}
		id = p.Child(0)
	}
	return page.Corruptf(id, "the tree is deeper than any real one")
}
