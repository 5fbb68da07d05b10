package space

import "holdfast/internal/page"

// An extentSet is a set of pages that is kept as its maximal runs. For a few
// runs it is much faster than a pageSet, and as good for many; but it cannot
// find a run by its length.
//
// Invariant: runs neither overlap nor touch.
type extentSet struct {
	lengths ordered[uint64] // by first page
	count   uint64          // members
}

func (s *extentSet) init() { s.lengths.init() }

func (s *extentSet) clear() {
	s.lengths.clear()
	s.count = 0
}

// add makes the pages of e members. None of them may be one.
func (s *extentSet) add(e page.Extent) {
	s.count += e.N
	start, end := uint64(e.Start), uint64(e.End())
	at, ok := s.lengths.floor(start)
	next, joins := s.after(at, ok)
	joins = joins && s.lengths.key(next) == end
	if ok && s.lengths.key(at)+*s.lengths.val(at) == start {
		*s.lengths.val(at) += e.N
		if joins {
			*s.lengths.val(at) += *s.lengths.val(next)
			s.lengths.remove(next)
		}
		return
	}
	if joins {
		s.lengths.rekey(next, start)
		*s.lengths.val(next) += e.N
		return
	}
	s.lengths.insert(start, e.N)
}

// after is the place after at, or the first one if at is none.
func (s *extentSet) after(at place, ok bool) (place, bool) {
	if !ok {
		return place{}, s.lengths.size > 0
	}
	return s.lengths.next(at)
}

// remove makes the pages of e no members. All of them must be.
func (s *extentSet) remove(e page.Extent) {
	s.count -= e.N
	at, _ := s.lengths.floor(uint64(e.Start))
	key, length := s.lengths.key(at), s.lengths.val(at)
	before, rest := uint64(e.Start)-key, key+*length-uint64(e.End())
	switch {
	case before > 0:
		*length = before
		if rest > 0 {
			s.lengths.insert(uint64(e.End()), rest)
		}
	case rest > 0:
		*length = rest
		s.lengths.rekey(at, uint64(e.End()))
	default:
		s.lengths.remove(at)
	}
}

// run is the run at a place.
func (s *extentSet) run(at place) page.Extent {
	return page.Extent{Start: page.ID(s.lengths.key(at)), N: *s.lengths.val(at)}
}

// around is the run that has a page as a member.
func (s *extentSet) around(id page.ID) (page.Extent, bool) {
	if at, ok := s.lengths.floor(uint64(id)); ok {
		e := s.run(at)
		return e, id < e.End()
	}
	return page.Extent{}, false
}

// runFrom is the first run of members at or after from, cut off at limit.
func (s *extentSet) runFrom(from, limit page.ID) (page.Extent, bool) {
	if s.count == 0 {
		return page.Extent{}, false
	}
	at, ok := s.lengths.floor(uint64(from))
	if !ok || s.run(at).End() <= from {
		if at, ok = s.after(at, ok); !ok {
			return page.Extent{}, false
		}
	}
	e := s.run(at)
	start, end := max(e.Start, from), min(e.End(), limit)
	if start >= end {
		return page.Extent{}, false
	}
	return page.Extent{Start: start, N: uint64(end - start)}, true
}

// gapFrom is the first run of pages at or after from that are not members, cut
// off at limit.
func (s *extentSet) gapFrom(from, limit page.ID) (page.Extent, bool) {
	if e, ok := s.around(from); ok {
		from = e.End()
	}
	if from >= limit {
		return page.Extent{}, false
	}
	if at, ok := s.lengths.after(uint64(from)); ok {
		limit = min(limit, page.ID(s.lengths.key(at)))
	}
	return page.Extent{Start: from, N: uint64(limit - from)}, true
}
