package salvage

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"holdfast/internal/page"
)

// Candidate is a page that can be the root of the database.
type Candidate struct {
	Root     page.ID
	Slot     int     // of the meta that names it; -1 if none does
	Trailing bool    // the part of it does that Holdfast wrote
	Unsure   bool    // that meta is not whole
	Tx       uint64  // which it gives
	Freelist page.ID // its pages and those that this one lists are all there are; 0: no such
	Buckets  uint64
	Keys     uint64
	Pages    uint64
	Damaged  uint64 // pages and elements that cannot be used
	Stale    uint64 // pages that hold what was written later, or that it reaches twice
	Within   bool   // it is a part of one that is sound
	Chosen   bool
}

// Sound tells whether all that it reaches can be used, and is its own.
func (c *Candidate) Sound() bool { return c.Damaged+c.Stale == 0 }

// candidate is what the search knows of one.
type candidate struct {
	id     page.ID
	node   node
	inner  bool      // a sound candidate reaches it
	likeIt bool      // and it has one as a bucket that is like itself
	exact  *freelist // the pages of both are all that there are
	own    uint64    // see newest
}

func (c *candidate) sound() bool { return c.node.stale+c.node.damaged == 0 }

// freelist is a freelist page of some state.
type freelist struct {
	id        page.ID
	pages     uint64  // that it lists, and its own
	ids       uint64  // the sum of their hashes
	last      page.ID // the highest of them
	highWater page.ID
}

// gather finds all pages that can be the root, and all freelist pages. All pages were
// scanned.
func (s *search) gather() error {
	for id := page.FirstDataPage; id < s.pages; id++ {
		if !s.isOrphan(id) {
			if h, ok := s.peek(id); ok && h.ID == id && h.Flags == page.FlagFreelist && len(s.lists) < maxCandidates {
				s.addFreelist(id)
			}
			continue
		}
		n, err := s.tree(id)
		if err != nil {
			return err
		}
		if n.tops && len(s.found) < maxCandidates {
			s.found = append(s.found, candidate{id: id, node: n})
		}
	}
	if s.left < 0 {
		s.r.Notes = appendOnce(s.r.Notes, "there are so many pages that look like a root of the database that not all could be followed")
	}
	return nil
}

func (s *search) addFreelist(id page.ID) {
	l := freelist{id: id}
	add := func(id page.ID) {
		l.pages, l.ids, l.last = l.pages+1, l.ids+hashID(id), max(l.last, id)
	}
	n, err := s.eachFree(id, add)
	if err != nil {
		return
	}
	for i := range page.ID(n) {
		add(id + i)
	}
	s.lists = append(s.lists, l)
}

// pair looks for candidates that together with a freelist are all pages of a file: in
// each state that bbolt, or the end of a program, leaves all pages are in use or listed.
func (s *search) pair() {
	type pairing struct {
		c, l      int
		highWater page.ID
	}
	var all []pairing
	for i, c := range s.found {
		for j, l := range s.lists {
			high := max(c.node.last, l.last) + 1
			if c.sound() && c.node.pages+l.pages+uint64(page.FirstDataPage) == uint64(high) && len(all) < maxCandidates {
				all = append(all, pairing{i, j, high})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b pairing) int { return cmp.Compare(a.highWater, b.highWater) })
	below, sum := page.FirstDataPage, uint64(0)
	for _, p := range all {
		for ; below < p.highWater; below++ {
			sum += hashID(below)
		}
		c, l := &s.found[p.c], s.lists[p.l]
		if c.node.ids+l.ids == sum {
			l.highWater = p.highWater
			c.exact = &l
		}
	}
}

// nest notes which candidates sound ones reach.
func (s *search) nest() error {
	at := make(map[page.ID]*candidate, len(s.found))
	for i := range s.found {
		at[s.found[i].id] = &s.found[i]
	}
	met := make([]bool, s.pages)
	for i := range s.found {
		s.found[i].inner = false
	}
	for i := range s.found {
		c := &s.found[i]
		if !c.sound() {
			continue
		}
		err := s.each(c.id, func(id page.ID, name uint64) bool {
			other := at[id]
			c.likeIt = c.likeIt || other != nil && name != 0 && s.alike(c, other)
			if id >= s.pages || met[id] {
				return false
			}
			met[id] = true
			if other != nil && id != c.id {
				other.inner = true
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lone is the one sound candidate that has, as a bucket, one that is like itself; nil
// if there is none, or more: a database is seldom in a bucket of its own, but the page of a bucket of
// an old state may since have become the root.
func (s *search) lone() (lone *candidate) {
	for i := range s.found {
		c := &s.found[i]
		switch {
		case !c.sound() || !c.likeIt:
		case lone != nil:
			return nil
		default:
			lone = c
		}
	}
	return lone
}

// maxAlike bounds the buckets by whose names candidates are compared.
const maxAlike = 100

// alike tells whether at least half of the first buckets of a are in b too.
func (s *search) alike(a, b *candidate) bool {
	if a.node.height > 0 || b.node.height > 0 {
		return false
	}
	p, err := s.load(a.id)
	q, err2 := s.load(b.id)
	if s.left -= 2; err != nil || err2 != nil {
		return false
	}
	n, both := min(p.Count(), maxAlike), 0
	for i := range n {
		if key, err := p.Key(i); err == nil {
			if _, exact, err := q.Search(key); err == nil && exact {
				both++
			}
		}
	}
	return both > 0 && 2*both >= n
}

// reached is what a candidate reaches.
type reached struct {
	c     *candidate
	pages []uint64 // a bit for each
	twice uint64
}

func (r *reached) has(id page.ID) bool { return r.pages[id/64]&(1<<(id%64)) != 0 }

// reach goes through the pages of a candidate.
func (s *search) reach(c *candidate) (*reached, error) {
	r := &reached{c: c, pages: make([]uint64, s.pages/64+1)}
	r.pages[c.id/64] |= 1 << (c.id % 64)
	err := s.each(c.id, func(id page.ID, name uint64) bool {
		if id >= s.pages || r.has(id) {
			r.twice++
			return false
		}
		r.pages[id/64] |= 1 << (id % 64)
		if name != 0 {
			s.named[id] = uint8(min(s.names[name], math.MaxUint8))
		}
		return true
	})
	return r, err
}

// known is by how many pages more than one those are named that x reaches and y does not.
func (s *search) known(x, y *reached) (sum uint64) {
	for i := range x.pages {
		for set := x.pages[i] &^ y.pages[i]; set != 0; set &= set - 1 {
			id := i*64 + bits.TrailingZeros64(set)
			sum += uint64(max(s.named[id], 1)) - 1
		}
	}
	return sum
}

// countNames counts how often pages are named.
func (s *search) countNames() error {
	for id := page.FirstDataPage; id < s.pages; id++ {
		if !s.isOrphan(id) {
			continue
		}
		if n, ok := s.nodes[id]; ok && n.simple() {
			continue
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
		p, err := s.load(id)
		if s.left--; err != nil || s.left < 0 {
			continue
		}
		s.countNamesOf(p)
	}
	return nil
}

func (s *search) countNamesOf(p page.Page) {
	if p.IsLeaf() {
		s.eachNamed(p, func(_ page.ID, name uint64) {
			if _, ok := s.names[name]; ok || len(s.names) < maxNames {
				s.names[name]++
			}
		})
		return
	}
	for i := range p.Count() {
		key, child, err := p.Branch(i)
		if err == nil && s.exists(child) && s.firsts[child] == s.hashKey(key) && s.named[child] < math.MaxUint8 {
			s.named[child]++
		}
	}
}

// Bounds of the candidates that are compared with each other.
const (
	maxCompared  = 64
	compareSteps = 64 << 20
)

// newest puts the candidates first that look newest: those of the highest sequences, which
// only grow, and of these the one of which least was known before. What the newest state
// has, and the one before it has not, was written last: only the newest names it. What an
// older state has, and one next to it has not, older pages name too.
func (s *search) newest(all []*candidate) ([]*candidate, error) {
	most := min(max(int(math.Sqrt(compareSteps/float64(s.pages+1))), 2), maxCompared)
	slices.SortStableFunc(all, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(b.node.sequence, a.node.sequence), cmp.Compare(b.node.keys, a.node.keys), cmp.Compare(b.id, a.id))
	})
	if len(all) < 2 {
		return all, nil
	}
	var sets []*reached
	for _, c := range all[:min(len(all), most)] {
		r, err := s.reach(c)
		if err != nil {
			return nil, err
		}
		if r.twice > 0 {
			c.node.stale += r.twice
		}
		sets = append(sets, r)
	}
	for _, x := range sets {
		x.c.own = math.MaxUint64
		for _, y := range sets {
			if x == y || y.c.node.stale > 0 {
				continue
			}
			x.c.own = min(x.c.own, s.known(x, y))
		}
	}
	compared := all[:len(sets)]
	slices.SortStableFunc(compared, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(min(a.node.stale, 1), min(b.node.stale, 1)), cmp.Compare(b.node.sequence, a.node.sequence), cmp.Compare(a.own, b.own))
	})
	return all, nil
}
