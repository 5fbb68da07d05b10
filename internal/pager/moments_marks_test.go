package pager_test

import (
	"fmt"

	"holdfast/internal/page"
	"holdfast/internal/pager"
)

// marked is what the pages of a Pager held when they were marked.
type marked struct {
	of    *pager.Pager
	texts map[page.ID]string
}

// remembers marks the pages of what is held and of what is current, and looks whether those that are marked already are what they
// were then.
func (h *history) remembers() {
	if h.marked.of != h.Pager {
		h.marked = marked{h.Pager, map[page.ID]string{}}
	}
	snap, err := h.Begin()
	if err != nil {
		h.fail("begin: %w", err)
		return
	}
	defer snap.Release()
	for _, s := range append([]*holding{{snap: snap}}, h.held...) {
		state := s.snap.Value()
		if h.Lost(state) != nil {
			continue
		}
		if err := scanTree(state, func(e page.Extent) error { return h.mark(state, e.Start) }); err != nil {
			h.fail("marks: %w", err)
		}
	}
}

func (h *history) mark(s *pager.State, id page.ID) error {
	p, err := s.Page(id)
	if err != nil || p.Count() == 0 {
		return err
	}
	el, err := p.Leaf(1)
	if err != nil {
		return err
	}
	now, before := string(el.Value), h.marked.texts[id]
	m := s.Mark(el.Value, []byte("text"))
	switch {
	case m.IsSet() && before != now:
		return fmt.Errorf("page %d has %.16q, and is marked as %.16q", id, now, before)
	case m.IsSet():
		h.counts["marked"]++
	case before != "" && before != now && len(before) == len(now):
		h.counts["marked, written again"]++
	}
	m.Set()
	if h.marked.texts[id] = now; !s.Mark(el.Value, []byte("text")).IsSet() {
		return fmt.Errorf("page %d cannot be marked", id)
	}
	return nil
}
