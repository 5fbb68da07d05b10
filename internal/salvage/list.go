package salvage

import (
	"context"
	"io"
	"slices"

	"holdfast/internal/page"
)

// List gives the pages of the file r that can be the root of the database, the one that
// Run would choose first, then those that the metas name. The report has what is odd.
func List(ctx context.Context, r io.ReaderAt, size int64, options Options) ([]Candidate, *Report, error) {
	s, err := begin(ctx, r, size, options)
	if err != nil {
		return nil, nil, err
	}
	s.limit(0)
	list, err := s.list()
	s.conclude()
	return list, &s.r, err
}

func (s *salvage) list() ([]Candidate, error) {
	states, doubts, mended := s.states()
	s.r.Doubts, s.r.Notes = doubts, mended
	search, all, err := s.search()
	if err != nil {
		return nil, err
	}
	defer search.end()
	var list []Candidate
	have := make(map[page.ID]bool)
	add := func(c *candidate, st *state) {
		if !have[c.id] {
			have[c.id] = true
			list = append(list, s.candidate(c, st))
		}
	}
	for i := range states {
		c, err := search.ofState(states[i], all)
		if err != nil {
			return nil, err
		}
		add(c, &states[i])
	}
	for _, c := range all {
		add(c, nil)
	}
	return choose(list, states, all), nil
}

// ofState is the candidate that the root of a state is.
func (s *search) ofState(st state, all []*candidate) (*candidate, error) {
	for _, c := range all {
		if c.id == st.root {
			return c, nil
		}
	}
	n, err := s.tree(st.root)
	c := &candidate{id: st.root, node: n}
	if err != nil || n.pages == 0 {
		return c, err
	}
	r, err := s.reach(c)
	c.node.stale += r.twice
	return c, err
}

func (s *salvage) candidate(c *candidate, st *state) Candidate {
	out := Candidate{
		Root: c.id, Slot: -1, Buckets: c.node.buckets, Keys: c.node.keys, Pages: c.node.pages,
		Damaged: c.node.damaged, Stale: c.node.stale, Within: c.inner,
	}
	if c.exact != nil {
		out.Freelist = c.exact.id
	}
	if st != nil {
		out.Slot, out.Tx, out.Trailing, out.Unsure = st.slot, st.number, st.trailing, st.unsure
	}
	return out
}

// choose puts the candidate first that Run takes: see start.
func choose(list []Candidate, states []state, all []*candidate) []Candidate {
	at := -1
	for _, st := range states {
		i := slices.IndexFunc(list, func(c Candidate) bool { return c.Root == st.root })
		if at < 0 && (list[i].Pages > 0 && !st.unsure || st.unsure && list[i].Sound() && list[i].Pages > 0) {
			at = i
		}
	}
	if at < 0 && len(all) > 0 {
		at = slices.IndexFunc(list, func(c Candidate) bool { return c.Root == all[0].id })
	}
	if at < 0 {
		return list
	}
	best := list[at]
	best.Chosen = true
	return slices.Concat([]Candidate{best}, list[:at], list[at+1:])
}
