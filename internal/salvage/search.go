package salvage

import (
	"bytes"
	"hash/maphash"

	"holdfast/internal/page"
)

// Bounds of the search for the root. Trees that share pages, as the states of a database
// do, cost no more than their pages as long as what is found out of these is kept.
const (
	maxNodes      = 100_000 // pages of which it is kept
	maxCandidates = 20_000
	maxNames      = 100_000 // buckets of which it is counted who names them
	searchLoads   = 16      // pages that are read, for each one of the file
	pagesPerLoad  = 256     // of one run, that take as long as one that is read
)

// node is what is known of the tree below a page, with all buckets in it.
type node struct {
	pages, keys, buckets uint64
	ids                  uint64  // the sum of the hashes of the numbers of its pages
	last                 page.ID // the highest of them
	sequence             uint64  // the sum of the sequences of its buckets
	damaged              uint64  // pages and elements that cannot be used
	stale                uint64  // pages that can, and are not what was named: they were written anew since
	height               int     // levels above its leaves; -1: not known
	tops                 bool    // it holds buckets, and nothing else at its top
}

func (n *node) add(m node) {
	n.pages, n.keys, n.buckets = n.pages+m.pages, n.keys+m.keys, n.buckets+m.buckets
	n.ids, n.last, n.sequence = n.ids+m.ids, max(n.last, m.last), n.sequence+m.sequence
	n.damaged, n.stale = n.damaged+m.damaged, n.stale+m.stale
}

// simple tells whether the page is a leaf without buckets that have pages of their own.
func (n *node) simple() bool { return n.height == 0 && n.buckets == 0 }

// hashID is a hash of a page number. Sums of them tell sets of pages apart.
func hashID(id page.ID) uint64 {
	x := uint64(id) + 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// keySpan is the first and the last key below a page.
type keySpan struct{ first, last []byte }

// search is a search for the root.
type search struct {
	*salvage
	nodes  map[page.ID]node
	spans  map[page.ID]keySpan // of these, as far as keys are kept
	open   map[page.ID]bool    // pages whose trees are being looked at
	left   int64               // pages that may be read
	seed   maphash.Seed
	firsts []uint32 // of each page, a hash of its first key
	named  []uint8  // of each page, how many branches name it by its first key
	names  map[uint64]uint32
	lists  []freelist
	found  []candidate
}

func newSearch(s *salvage) *search {
	return &search{
		salvage: s, nodes: make(map[page.ID]node), spans: make(map[page.ID]keySpan), open: make(map[page.ID]bool),
		left: searchLoads*int64(s.pages) + maxDepth, seed: maphash.MakeSeed(),
		firsts: make([]uint32, s.pages), named: make([]uint8, s.pages), names: make(map[uint64]uint32),
	}
}

// end gives back what was kept of keys.
func (s *search) end() {
	for _, span := range s.spans {
		s.release(span.first, span.last)
	}
	s.spans = nil
}

// tree looks at the tree below page id. The error is that the context has ended.
func (s *search) tree(id page.ID) (n node, err error) {
	if known, ok := s.nodes[id]; ok {
		return known, nil
	}
	if s.open[id] || len(s.open) > maxNesting {
		return node{stale: 1, height: -1}, nil
	}
	if err := s.ctx.Err(); err != nil {
		return n, err
	}
	if s.left--; s.left < 0 {
		return node{damaged: 1, height: -1}, nil
	}
	s.open[id] = true
	defer delete(s.open, id)
	p, err := s.load(id)
	if err != nil {
		n = node{damaged: 1, height: -1}
		if h, ok := s.peek(id); ok && s.exists(id) && h.ID == id && h.Flags == page.FlagFreelist {
			n = node{stale: 1, height: -1}
		}
		s.keepNode(id, n)
		return n, nil
	}
	s.progress()
	s.left -= int64(p.Pages() / pagesPerLoad)
	n = node{pages: p.Pages(), last: id + page.ID(p.Pages()-1)}
	for i := range p.Pages() {
		n.ids += hashID(id + page.ID(i))
	}
	n.damaged = uint64(p.Count() - len(sound(p, bounds{})))
	if n.damaged == 0 && p.Count() > 0 {
		if key, err := p.Key(0); err == nil {
			s.firsts[id] = s.hashKey(key)
		}
	}
	if p.IsLeaf() {
		err = s.leafTree(p, &n)
	} else {
		err = s.branchTree(p, &n)
	}
	if err == nil {
		s.keepNode(id, n)
	}
	return n, err
}

func (s *search) keepNode(id page.ID, n node) {
	if len(s.nodes) < maxNodes {
		s.nodes[id] = n
	}
}

func (s *search) hashKey(key []byte) uint32 { return uint32(maphash.Bytes(s.seed, key)) }

// leafTree adds what a leaf holds to n.
func (s *search) leafTree(p page.Page, n *node) error {
	n.tops = p.Count() > 0
	for i := range p.Count() {
		e, err := p.Leaf(i)
		if err != nil {
			continue // counted as damaged
		}
		if !e.IsBucket() {
			n.keys++
			n.tops = false
			continue
		}
		n.buckets++
		b, inline, err := page.DecodeBucket(e.Value)
		n.sequence += b.Sequence
		switch {
		case b.Root != 0:
			below, err := s.tree(b.Root)
			if err != nil {
				return err
			}
			n.add(below)
		case err != nil || len(sound(inline, bounds{})) < inline.Count():
			n.damaged++
		default:
			n.keys += uint64(inline.Count())
		}
	}
	return nil
}

// branchTree adds what is below a branch to n.
func (s *search) branchTree(p page.Page, n *node) error {
	n.height, n.tops = -1, p.Count() > 0
	if p.Count() == 0 {
		n.damaged++
	}
	for i := range p.Count() {
		key, child, err := p.Branch(i)
		if err != nil {
			continue // counted as damaged
		}
		below, err := s.tree(child)
		if err != nil {
			return err
		}
		n.add(below)
		n.tops = n.tops && (below.tops || below.pages == 0)
		if below.height >= 0 && n.height >= 0 && below.height+1 != n.height {
			n.stale++
		} else if below.height >= 0 {
			n.height = below.height + 1
		}
		if below.pages == 0 {
			continue
		}
		within := bounds{lo: key}
		if i+1 < p.Count() {
			within.hi, _ = p.Key(i + 1)
		}
		if span, ok := s.span(child); ok && (!within.has(span.first) || !within.has(span.last)) {
			n.stale++
		}
	}
	if n.height < 0 { // nothing of what is below can be read
		n.tops = false
	}
	return nil
}

// span is the first and the last key below page id; false if it cannot be told.
func (s *search) span(id page.ID) (span keySpan, ok bool) {
	if span, ok = s.spans[id]; ok {
		return span, true
	}
	for at, depth := id, 0; ; depth++ {
		p, err := s.load(at)
		if s.left--; err != nil || p.Count() == 0 || depth > maxDepth || s.left < 0 {
			return span, false
		}
		if at == id {
			first, err := p.Key(0)
			if err != nil {
				return span, false
			}
			span.first = bytes.Clone(first)
		}
		if p.IsLeaf() {
			last, err := p.Key(p.Count() - 1)
			if err != nil {
				return span, false
			}
			span.last = bytes.Clone(last)
			break
		}
		at = p.Child(p.Count() - 1)
	}
	if len(s.spans) < maxNodes && s.keep(span.first, span.last) {
		s.spans[id] = span
	}
	return span, true
}

// each calls visit with each page that the tree below page id names, with the hash of
// the name and page of a bucket (0 for a page of a tree). Leaves without buckets that are known are not read.
func (s *search) each(id page.ID, visit func(id page.ID, name uint64) (down bool)) error {
	todo := []page.ID{id}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if n, ok := s.nodes[at]; ok && n.simple() {
			continue
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
		p, err := s.load(at)
		if s.left--; err != nil || s.left < 0 {
			continue
		}
		s.eachNamed(p, func(child page.ID, name uint64) {
			if visit(child, name) {
				todo = append(todo, child)
			}
		})
	}
	return nil
}

// eachNamed calls visit with each page that p names.
func (s *search) eachNamed(p page.Page, visit func(id page.ID, name uint64)) {
	for i := range p.Count() {
		if !p.IsLeaf() {
			visit(p.Child(i), 0)
			continue
		}
		e, err := p.Leaf(i)
		if err != nil || !e.IsBucket() {
			continue
		}
		if b, _, _ := page.DecodeBucket(e.Value); b.Root != 0 {
			visit(b.Root, maphash.Bytes(s.seed, e.Key)^hashID(b.Root)|1)
		}
	}
}
