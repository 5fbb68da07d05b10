package salvage

import (
	"bytes"
	"errors"

	"holdfast/internal/page"
)

// Bounds on trees that are believed.
const (
	maxDepth   = 64
	maxNesting = 10_000 // deeper ones cannot be made
)

// Place is a bucket of the output; one without a parent is the root.
type Place struct {
	Parent   *Place
	Name     []byte
	Sequence uint64
	Handle   any // the sink's

	depth int
	tree  *tree
	found *Found // in lost+found
}

// Path is the names of the buckets from the root down.
func (p *Place) Path() [][]byte {
	path := make([][]byte, p.depth)
	for ; p.Parent != nil; p = p.Parent {
		path[p.depth-1] = p.Name
	}
	return path
}

// tree is what is known of the pages of a bucket.
type tree struct {
	leafDepth int  // where its leaves are; -1: not known
	keys      bool // it holds keys,
	buckets   bool // and buckets
}

// hole is a page of a tree that cannot be used, and what it was to hold.
type hole struct {
	at     *Place
	page   page.ID
	depth  int
	kind   byte // markLeaf, markBranch or 0: as the page says itself
	bounds bounds
	report int // index in the report's ranges; -1: it is full
	closed bool
}

// mustBe tells what the page was, from the depth of other leaves of the tree if some are
// known: markLeaf, markBranch, or 0 if that cannot be told.
func (h *hole) mustBe() byte {
	switch d := h.at.tree.leafDepth; {
	case d >= 0 && h.depth >= d:
		return markLeaf
	case d >= 0:
		return markBranch
	}
	return h.kind
}

// walk saves the tree below page id, which is at a depth of the bucket at and whose
// keys lie within b.
func (s *salvage) walk(at *Place, id page.ID, depth int, b bounds) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	s.progress()
	if s.leftovers && s.is(id, markUsed) { // it was saved where it belongs
		return nil
	}
	p, err := s.claim(id)
	switch {
	case err != nil:
		return s.lose(at, id, depth, b, p, err)
	case depth >= maxDepth:
		return s.lose(at, id, depth, b, p, page.Corruptf(id, "the tree is deeper than any real one"))
	case p.IsLeaf():
		return s.leaf(at, p, depth, b)
	}
	return s.branch(at, p, depth, b)
}

// claim reads page id and notes that it is used.
func (s *salvage) claim(id page.ID) (page.Page, error) {
	if s.is(id, markTwice) {
		return page.Page{}, page.Corruptf(id, "the page is used in more than one place")
	}
	p, err := s.loadToSave(id)
	if !p.Valid() {
		s.mark(id, 1, markUsed)
		return p, err
	}
	if err != nil {
		s.mark(id, 1, markUsed)
		return p, err
	}
	if s.is(id, markUsed) {
		s.r.Doubled++
		s.mark(id, 1, markTwice)
		s.damaged(page.Corruptf(id, "the page is used in two places"))
	}
	s.mark(id, p.Pages(), markUsed)
	return p, nil
}

// damaged notes a page that cannot be used.
func (s *salvage) damaged(err error) {
	var c *page.CorruptError
	if s.stale || !errors.As(err, &c) {
		return
	}
	add(&s.r, &s.r.Damage, Damage{c.Page, c.Reason})
}

// lose notes that page id cannot be used. p is valid if all but its seal can be read.
func (s *salvage) lose(at *Place, id page.ID, depth int, b bounds, p page.Page, err error) error {
	if s.stale {
		return nil
	}
	s.damaged(err)
	h := hole{at: at, page: id, depth: depth, bounds: b}
	if p.Valid() {
		h.kind = markBranch
		if p.IsLeaf() {
			h.kind = markLeaf
			s.suspects.add(id, s.pages)
		}
	}
	s.addHole(h)
	return nil
}

func (s *salvage) addHole(h hole) {
	if len(s.r.Ranges) >= maxNoted && len(s.holes) >= maxNoted || !s.keep(h.bounds.lo, h.bounds.hi) {
		s.r.More = true
		return
	}
	h.bounds = h.bounds.clone()
	h.report = -1
	if n := len(s.r.Ranges); n < maxNoted {
		h.report = n
	}
	add(&s.r, &s.r.Ranges, Range{Page: h.page, Path: h.at.Path(), From: h.bounds.lo, To: h.bounds.hi})
	if len(s.holes) < maxNoted {
		s.holes = append(s.holes, h)
	}
}

// branch walks the children of a branch page. Where an element is damaged, the keys
// between its neighbours are lost.
func (s *salvage) branch(at *Place, p page.Page, depth int, b bounds) error {
	good := sound(p, bounds{nil, b.hi})
	if len(good) == 0 {
		return s.lose(at, p.ID(), depth, b, page.Page{}, page.Corruptf(p.ID(), "a branch page without an element that can be read"))
	}
	if n := p.Count() - len(good); n > 0 && !s.stale {
		s.damaged(page.Corruptf(p.ID(), "%d of its %d elements are damaged", n, p.Count()))
	}
	for j, i := range good {
		key, child, err := p.Branch(i)
		if err != nil {
			return err
		}
		within := bounds{key, b.hi}
		gap := i > 0 && j == 0 // what is missing before the first
		if j == 0 {
			within.lo = b.lo
		}
		last := p.Count() - 1
		if j+1 < len(good) {
			if within.hi, err = p.Key(good[j+1]); err != nil {
				return err
			}
			last = good[j+1] - 1
		}
		if !s.stale && (gap || last > i) {
			s.addHole(hole{at: at, page: p.ID(), depth: depth + 1, bounds: within})
		}
		if err := s.walk(at, child, depth+1, within); err != nil {
			return err
		}
	}
	return nil
}

// leaf saves the elements of a leaf page.
func (s *salvage) leaf(at *Place, p page.Page, depth int, b bounds) error {
	good := sound(p, b)
	if len(good) == 0 && p.Count() > 0 {
		if !s.is(p.ID(), markTwice) && p.ID() != 0 && len(sound(p, bounds{})) > 0 { // it is another tree's
			s.unmark(p.ID(), p.Pages(), markUsed)
		}
		return s.lose(at, p.ID(), depth, b, page.Page{}, page.Corruptf(p.ID(), "no key of the page is one that belongs there"))
	}
	if at.tree.leafDepth < 0 {
		at.tree.leafDepth = depth
	}
	if len(good) < p.Count() && (b.lo != nil || b.hi != nil) && !s.stale {
		s.strange(p.ID(), b)
	}
	next := 0
	for i := range p.Count() {
		if next == len(good) || good[next] != i {
			key, _ := p.Key(i)
			s.loseElement(at, p.ID(), key, "it does not fit its neighbours, or the page above")
			continue
		}
		next++
		e, err := p.Leaf(i)
		if err != nil {
			return err
		}
		if err := s.element(at, p.ID(), e); err != nil {
			return err
		}
	}
	return nil
}

func (s *salvage) loseElement(at *Place, id page.ID, key []byte, reason string) {
	if s.stale {
		return
	}
	s.r.LostElements++
	if len(key) > page.MaxKeySize {
		key = nil
	}
	if len(s.r.Elements) >= maxNoted || !s.keep(key) {
		s.r.More = true
		return
	}
	add(&s.r, &s.r.Elements, Element{Page: id, Path: at.Path(), Key: bytes.Clone(key), Reason: reason})
}

// element saves one element of page id.
func (s *salvage) element(at *Place, id page.ID, e page.Element) error {
	if e.IsBucket() {
		at.tree.buckets = true
		return s.bucket(at, id, e)
	}
	at.tree.keys = true
	if at.Parent == nil {
		s.loseElement(at, id, e.Key, "it is not a bucket, and stands where only buckets can be")
		return nil
	}
	switch outcome, err := s.sink.Put(at, e.Key, e.Value); {
	case err != nil:
		return err
	case outcome == Saved:
		s.count(at, &s.r.Keys)
	case outcome == Other:
		s.r.Conflicts++
	}
	return nil
}

// count notes what was saved: one more of n, if it has its place.
func (s *salvage) count(at *Place, n *uint64) {
	if at.found != nil {
		at.found.Count++
		s.r.Unplaced++
		return
	}
	*n++
	if s.filling != nil {
		s.r.Found++
		if s.filling.report >= 0 {
			s.r.Ranges[s.filling.report].Found++
		}
	}
}

// bucket saves the bucket that an element of page id names.
func (s *salvage) bucket(at *Place, id page.ID, e page.Element) error {
	if at.depth >= maxNesting {
		s.loseElement(at, id, e.Key, "buckets are nested deeper than any can be")
		return nil
	}
	header, inline, err := page.DecodeBucket(e.Value)
	if err != nil && len(e.Value) < page.BucketHeaderSize {
		s.loseElement(at, id, e.Key, "it is a bucket that cannot be read")
		return nil
	}
	child := &Place{Parent: at, Name: bytes.Clone(e.Key), Sequence: header.Sequence, depth: at.depth + 1, tree: &tree{leafDepth: -1}, found: at.found}
	saved, openErr := s.sink.Bucket(child)
	if openErr != nil {
		return openErr
	}
	if !saved { // a key has its name
		s.r.Conflicts++
		return nil
	}
	s.count(at, &s.r.Buckets)
	if header.Root != 0 {
		return s.walk(child, header.Root, 0, bounds{})
	}
	if err != nil {
		s.loseElement(at, id, e.Key, "it is a bucket whose content cannot be read")
		return nil
	}
	good := sound(inline, bounds{})
	for n := inline.Count() - len(good); n > 0; n-- {
		s.loseElement(child, id, nil, "it does not fit its neighbours")
	}
	for _, i := range good {
		inner, err := inline.Leaf(i)
		if err != nil {
			return err
		}
		if inner.IsBucket() {
			s.loseElement(child, id, inner.Key, "a bucket in a bucket that is stored inline")
			continue
		}
		if err := s.element(child, id, inner); err != nil {
			return err
		}
	}
	return nil
}
