package salvage

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"holdfast/internal/page"
)

// scan notes the orphans: pages that can be read, that no tree names which was walked,
// and that are not free.
func (s *salvage) scan(freeToo bool) error {
	if s.scanned && !freeToo {
		return nil
	}
	s.scanned = true
	skip := byte(markUsed | markFree)
	if freeToo {
		skip = markUsed
	}
	for id := page.FirstDataPage; id < s.pages; id++ {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		if s.is(id, skip) {
			continue
		}
		h, ok := s.peek(id)
		if !ok || h.ID != id || h.Flags != page.FlagLeaf && h.Flags != page.FlagBranch {
			continue
		}
		s.progress()
		p, err := s.load(id)
		switch {
		case err == nil && p.Count() > 0 && len(sound(p, bounds{})) == p.Count():
			s.orphan(p)
			if page.CheckSeal(p.Bytes(), id) == page.Sealed {
				id += page.ID(p.Pages() - 1) // what it holds may look like pages
			}
		case p.Valid() && err != nil && s.freeKnown && !freeToo:
			s.damaged(err)
			s.mark(id, 1, markUsed)
			if p.IsLeaf() {
				s.suspects.add(id, s.pages)
			}
		}
	}
	return nil
}

// orphan notes that p is one, and what it names.
func (s *salvage) orphan(p page.Page) {
	if !p.IsLeaf() {
		s.mark(p.ID(), 1, markBranch)
		for i := range p.Count() {
			s.mark(p.Child(i), 1, markChild)
		}
		return
	}
	s.mark(p.ID(), 1, markLeaf)
	for i := range p.Count() {
		if e, err := p.Leaf(i); err == nil && e.IsBucket() {
			if h, _, _ := page.DecodeBucket(e.Value); h.Root != 0 {
				s.mark(h.Root, 1, markRoot)
			}
		}
	}
}

// isOrphan tells whether page id is one that was not walked yet.
func (s *salvage) isOrphan(id page.ID) bool {
	return s.is(id, markLeaf|markBranch) && !s.is(id, markUsed)
}

// orphan is the tree below an orphaned page.
type orphan struct {
	id          page.ID
	first, last []byte // keys
	height      int    // 0 for a leaf
	buckets     bool   // the first leaf holds nothing else
}

// examine goes down both sides of an orphan; false if it cannot be read.
func (s *salvage) examine(id page.ID) (o orphan, ok bool) {
	o.id = id
	for at := id; ; o.height++ {
		p, err := s.load(at)
		if err != nil || p.Count() == 0 || o.height > maxDepth {
			return o, false
		}
		if o.first, err = p.Key(0); err != nil {
			return o, false
		}
		if at == id {
			if o.last, err = p.Key(p.Count() - 1); err != nil {
				return o, false
			}
		}
		if p.IsLeaf() {
			o.buckets = allBuckets(p)
			break
		}
		at = s.someChild(p)
	}
	o.first, o.last = bytes.Clone(o.first), bytes.Clone(o.last)
	if last := s.lastBelow(id); last != nil {
		o.last = last
	}
	return o, true
}

// someChild is the first child of a branch that is an orphan; 0 if none is.
func (s *salvage) someChild(p page.Page) page.ID {
	for i := range p.Count() {
		if s.isOrphan(p.Child(i)) {
			return p.Child(i)
		}
	}
	return 0
}

// lastBelow is the last key below an orphan, nil if the way there is damaged.
func (s *salvage) lastBelow(id page.ID) []byte {
	for range maxDepth {
		p, err := s.load(id)
		if err != nil || p.Count() == 0 {
			return nil
		}
		if p.IsLeaf() {
			key, err := p.Key(p.Count() - 1)
			if err != nil {
				return nil
			}
			return bytes.Clone(key)
		}
		if id = p.Child(p.Count() - 1); !s.isOrphan(id) {
			return nil
		}
	}
	return nil
}

func allBuckets(p page.Page) bool {
	for i := range p.Count() {
		if e, err := p.Leaf(i); err != nil || !e.IsBucket() {
			return false
		}
	}
	return true
}

// canBeBelow tells whether the orphan can be what the page of h named.
func (s *salvage) canBeBelow(h *hole, o orphan) bool {
	switch {
	case h.mustBe() == markLeaf || !h.bounds.has(o.first) || !h.bounds.has(o.last):
		return false
	case h.at.Parent == nil && !o.buckets:
		return false
	case h.at.tree.leafDepth >= 0:
		return h.depth+1+o.height == h.at.tree.leafDepth
	}
	return !s.is(o.id, markChild)
}

// couldName tells whether a leaf may be lost with h that named other buckets: what these
// hold is orphaned too, and may look like anything. likely: as far as what else is in
// its bucket tells.
func (h *hole) couldName() (possible, likely bool) {
	t := h.at.tree
	possible = h.mustBe() != markBranch
	return possible, possible && (t.buckets || !t.keys || h.at.Parent == nil)
}

// lost is an orphan of which it is not known where it belongs, but with which others.
type lost struct {
	orphan
	group page.ID // the one page below which all that fit it belong
}

// maxGrouped bounds the orphans whose keys are kept in memory: more than a branch page can
// name. Others get a bucket each.
const maxGrouped = 100_000

// unknown notes an orphan of which it is not known where it belongs: in its mark, as there
// can be as many as the file has pages.
func (s *salvage) unknown(o orphan, group page.ID) {
	if s.is(o.id, markListed) {
		return
	}
	s.mark(o.id, 1, markListed)
	s.unplaced++
	if group != 0 && o.height >= 0 && len(s.grouped) < maxGrouped && s.keep(o.first, o.last) {
		s.grouped = append(s.grouped, lost{o, group})
	}
}

// maxHoles bounds the holes for which orphans are looked for at a time.
const maxHoles = 1000

// fill looks for what was below the holes that are open, and closes them.
func (s *salvage) fill() error {
	var open []int
	for i := range s.holes {
		if !s.holes[i].closed && len(open) < maxHoles {
			open = append(open, i)
			s.holes[i].closed = true
		}
	}
	earlier := 0
	for i := range open[0] {
		if _, likely := s.holes[i].couldName(); likely {
			earlier++
		}
	}
	found := make(map[int][]orphan)
	for id := page.FirstDataPage; id < s.pages; id++ {
		if !s.isOrphan(id) {
			continue
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
		if s.is(id, markRoot) { // it comes with the orphan that names it, if that is saved
			s.unknown(orphan{id: id, height: -1}, 0)
			continue
		}
		o, ok := s.examine(id)
		if !ok {
			o = orphan{id: id, height: -1}
		}
		s.place(o, ok, open, earlier, found)
	}
	for _, i := range open {
		if err := s.fillHole(i, found[i]); err != nil {
			return err
		}
	}
	return nil
}

// place decides where an orphan belongs: below the one hole that it can have come from,
// or where is not known. If it is not known which pages are free, it may be of an older
// state, or of another bucket in that. earlier holes could name it.
func (s *salvage) place(o orphan, ok bool, open []int, earlier int, found map[int][]orphan) {
	direct, sources, possible := -1, earlier, earlier > 0 || s.freeKnown
	for _, i := range open {
		h := &s.holes[i]
		fits := ok && s.canBeBelow(h, o)
		if fits {
			direct = i
		}
		could, likely := h.couldName()
		if fits || likely {
			sources++
		}
		possible = possible || fits || could
	}
	switch {
	case !possible:
	case sources == 1 && direct >= 0 && s.freeKnown && s.holes[direct].mustBe() == markBranch && s.keep(o.first, o.last):
		found[direct] = append(found[direct], o)
	case sources == 1 && direct >= 0:
		s.unknown(o, s.holes[direct].page)
	default:
		s.unknown(o, 0)
	}
}

// apart divides orphans into those whose keys lie apart from those of all others, in
// their order, and the others.
func apart(all []orphan) (alone, others []orphan) {
	slices.SortFunc(all, func(a, b orphan) int {
		return cmp.Or(bytes.Compare(a.first, b.first), cmp.Compare(a.id, b.id))
	})
	var end []byte // the last key so far
	for i, o := range all {
		overlaps := i > 0 && bytes.Compare(o.first, end) <= 0 || i+1 < len(all) && bytes.Compare(all[i+1].first, o.last) <= 0
		if i == 0 || bytes.Compare(o.last, end) > 0 {
			end = o.last
		}
		if overlaps {
			others = append(others, o)
		} else {
			alone = append(alone, o)
		}
	}
	return alone, others
}

// fillHole saves the orphans that belong below hole i. Those that contradict each other
// cannot all belong there: they go into lost+found.
func (s *salvage) fillHole(i int, all []orphan) error {
	alone, others := apart(all)
	for _, o := range others {
		s.unknown(o, 0)
	}
	for _, o := range all {
		s.release(o.first, o.last)
	}
	h := s.holes[i] // the list may grow meanwhile
	s.filling = &h
	defer func() { s.filling = nil }()
	for _, o := range alone {
		if !s.isOrphan(o.id) {
			continue
		}
		if err := s.walk(h.at, o.id, h.depth+1, h.bounds); err != nil {
			return err
		}
	}
	return nil
}

// saveUnplaced saves the orphans of which it is not known where they belong.
func (s *salvage) saveUnplaced() error {
	all := s.grouped
	s.grouped, s.unplaced, s.leftovers = nil, 0, true
	defer func() { s.leftovers = false }()
	groups := make(map[page.ID][]orphan)
	for _, l := range all {
		s.release(l.first, l.last)
		groups[l.group] = append(groups[l.group], l.orphan)
	}
	for _, l := range all {
		alone, _ := apart(groups[l.group])
		delete(groups, l.group)
		if len(alone) < 2 {
			continue
		}
		place, err := s.lostPlace(l.group, "pages below page %d, which is damaged", l.group)
		if err != nil {
			return err
		}
		for _, o := range alone {
			if s.isOrphan(o.id) {
				if err := s.walk(place, o.id, 0, bounds{}); err != nil {
					return err
				}
			}
		}
	}
	for _, tops := range []bool{true, false} { // what others name comes with those
		for id := page.FirstDataPage; id < s.pages; id++ {
			if !s.is(id, markListed) || !s.isOrphan(id) || tops && s.is(id, markChild|markRoot) {
				continue
			}
			place, err := s.lostPlace(id, "no sound page names this one")
			if err != nil {
				return err
			}
			if err := s.walk(place, id, 0, bounds{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// lostPlace is the bucket of lost+found for page id.
func (s *salvage) lostPlace(id page.ID, why string, args ...any) (*Place, error) {
	if s.foundAt == nil {
		name, err := s.sink.Fresh("lost+found")
		if err != nil {
			return nil, err
		}
		s.foundAt = &Place{Parent: s.root, Name: []byte(name), depth: 1, tree: &tree{leafDepth: -1}, found: &Found{}}
		if _, err := s.sink.Bucket(s.foundAt); err != nil {
			return nil, err
		}
		s.r.FoundIn = name
	}
	f := &Found{Name: fmt.Sprintf("page-%d", id), Page: id, Why: notef(why, args...)}
	p := &Place{Parent: s.foundAt, Name: []byte(f.Name), depth: 2, tree: &tree{leafDepth: -1}, found: f}
	_, err := s.sink.Bucket(p)
	if len(s.places) < maxNoted {
		s.places = append(s.places, f)
	} else {
		s.r.More = true
	}
	return p, err
}

// saveSuspects saves what can be read of leaves whose seal is wrong.
func (s *salvage) saveSuspects() error {
	for id, ok := s.suspects.next(); ok; id, ok = s.suspects.next() {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		p, err := s.loadToSave(id)
		if !p.Valid() || err == nil {
			continue
		}
		place, err := s.lostPlace(id, "its checksum is wrong: keys, values and names may have wrong bytes")
		if err != nil {
			return err
		}
		if err := s.leaf(place, p, 0, bounds{}); err != nil {
			return err
		}
	}
	return nil
}

// stranger is a leaf in a tree with keys that do not belong where it is: what names it
// may be damaged, and not the keys.
type stranger struct {
	page   page.ID
	bounds bounds // in which the others are, which were saved
}

// maxStrangers bounds the strangers whose bounds are kept.
const maxStrangers = 100_000

// strange notes that some keys of leaf page id do not lie within b.
func (s *salvage) strange(id page.ID, b bounds) {
	if len(s.strangers) < maxStrangers && s.keep(b.lo, b.hi) {
		s.strangers = append(s.strangers, stranger{id, b.clone()})
		return
	}
	s.crowd.add(id, s.pages)
}

// saveStrangers saves the keys of strangers that were not saved yet, and all keys of those
// of which it is not known any more which these are.
func (s *salvage) saveStrangers() error {
	all := s.strangers
	s.strangers = nil
	for _, l := range all {
		s.release(l.bounds.lo, l.bounds.hi)
		if err := s.saveStranger(l.page, func(key []byte) bool { return l.bounds.has(key) }); err != nil {
			return err
		}
	}
	for id, ok := s.crowd.next(); ok; id, ok = s.crowd.next() {
		if err := s.saveStranger(id, func([]byte) bool { return false }); err != nil {
			return err
		}
	}
	return nil
}

func (s *salvage) saveStranger(id page.ID, saved func(key []byte) bool) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	p, err := s.loadToSave(id)
	if err != nil {
		return nil
	}
	var place *Place
	for _, i := range sound(p, bounds{}) {
		e, err := p.Leaf(i)
		if err != nil || saved(e.Key) {
			continue
		}
		if place == nil {
			if place, err = s.lostPlace(id, "keys of the page do not fit what names it"); err != nil {
				return err
			}
		}
		if err := s.element(place, id, e); err != nil {
			return err
		}
	}
	return nil
}

// saveLeftovers saves what is left of leaf pages that can be read, free or not.
func (s *salvage) saveLeftovers() error {
	s.stale, s.leftovers = true, true
	for i := range s.marks {
		s.marks[i] &^= markLeaf | markBranch
	}
	if err := s.scan(true); err != nil {
		return err
	}
	for id := page.FirstDataPage; id < s.pages; id++ {
		if !s.is(id, markLeaf) || s.is(id, markUsed) {
			continue
		}
		place, err := s.lostPlace(id, "the page looks free: what it holds was deleted or replaced, or is a copy")
		if err != nil {
			return err
		}
		if err := s.walk(place, id, 0, bounds{}); err != nil {
			return err
		}
	}
	return nil
}
