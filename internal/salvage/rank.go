package salvage

import (
	"cmp"
	"slices"

	"holdfast/internal/page"
)

// maxRanked bounds how often candidates are sorted anew since one that seemed whole is not.
const maxRanked = 16

// rank sorts what was found, the best first.
func (s *search) rank() ([]*candidate, error) {
	s.pair()
	if err := s.countNames(); err != nil {
		return nil, err
	}
	for round := 1; ; round++ {
		if err := s.nest(); err != nil {
			return nil, err
		}
		if c := s.lone(); c != nil && c.exact == nil && round < maxRanked {
			c.node.stale++
			continue
		}
		best, rest := s.divide()
		faults := faultsOf(best)
		best, err := s.newest(best)
		if err != nil {
			return nil, err
		}
		if round < maxRanked && faultsOf(best) > faults {
			continue // what that one reaches may not be a part of it
		}
		slices.SortStableFunc(rest, func(a, b *candidate) int {
			return cmp.Or(cmp.Compare(a.node.stale+a.node.damaged, b.node.stale+b.node.damaged), cmp.Compare(b.node.keys, a.node.keys))
		})
		return slices.Concat(best, rest), nil
	}
}

func faultsOf(all []*candidate) (n uint64) {
	for _, c := range all {
		n += c.node.stale
	}
	return n
}

// divide tells those that can be the newest state from the others: with a freelist, of the longest
// file; or else those of which no page was written anew, which no sound one reaches and
// which hold at least half as many keys as any of them.
func (s *search) divide() (best, rest []*candidate) {
	high, keys := page.ID(0), uint64(0)
	for i := range s.found {
		c := &s.found[i]
		if c.exact != nil {
			high = max(high, c.exact.highWater)
		}
		if c.node.stale == 0 && !c.inner {
			keys = max(keys, c.node.keys)
		}
	}
	for i := range s.found {
		c := &s.found[i]
		fits := c.exact != nil && c.exact.highWater == high
		if high == 0 {
			fits = c.node.stale == 0 && !c.inner && c.node.keys >= keys/2
		}
		if fits {
			best = append(best, c)
		} else {
			rest = append(rest, c)
		}
	}
	return best, rest
}

// reason says what speaks for a candidate.
func (c *candidate) reason() string {
	switch {
	case c.exact != nil:
		return notef(" (its pages, and those that the freelist in page %d lists, are all there are)", c.exact.id)
	case c.sound():
		return " (all that it reaches is whole)"
	}
	return ""
}
