package salvage

import "holdfast/internal/page"

// Bounds of the search for the root. Trees that share pages, as the states of a database
// do, cost no more than their pages as long as what is found out of these is kept.
const (
	maxScores   = 100_000 // pages of which it is kept
	searchLoads = 16      // pages that are read, for each one of the file
)

// score tells how good a tree of buckets is as the root of the database.
type score struct {
	missing  int    // roots of its buckets that are not there
	sequence uint64 // the sum of their sequences
	ok       bool   // it is a tree of nothing but buckets
}

func (a score) better(b score) bool {
	return a.missing < b.missing || a.missing == b.missing && a.sequence >= b.sequence
}

// rootSearch is a search for the root.
type rootSearch struct {
	*salvage
	scores map[page.ID]score // of the trees below these pages
	left   int64             // pages that may be read
}

// findRoot chooses, of the orphans that can be the root of the database, the one whose
// buckets are there, then that of the highest sequences, as these only grow, then the
// last of the file. 0: there is none. others is how many more there are.
func (s *salvage) findRoot() (root page.ID, others int, err error) {
	search := rootSearch{s, make(map[page.ID]score), searchLoads*int64(s.pages) + maxDepth}
	var best score
	for id := page.FirstDataPage; id < s.pages && search.left > 0; id++ {
		if !s.isOrphan(id) || s.is(id, markChild|markRoot) {
			continue
		}
		o, ok := s.examine(id)
		if !ok || !o.buckets {
			continue
		}
		now, err := search.score(id, maxDepth)
		if err != nil {
			return 0, 0, err
		}
		if !now.ok {
			continue
		}
		others++
		if root == 0 || now.better(best) {
			root, best = id, now
		}
	}
	return root, max(others-1, 0), nil
}

// score goes through the tree below page id. The error is that the context has ended.
func (s *rootSearch) score(id page.ID, depth int) (sum score, err error) {
	if known, ok := s.scores[id]; ok {
		return known, nil
	}
	if err := s.ctx.Err(); err != nil {
		return sum, err
	}
	if s.left--; depth == 0 || s.left < 0 {
		return score{}, nil
	}
	p, err := s.load(id)
	if err != nil {
		return score{}, nil
	}
	s.progress()
	sum.ok = true
	for i := 0; i < p.Count() && sum.ok; i++ {
		var part score
		if p.IsLeaf() {
			part = s.bucketAt(p, i)
		} else if part, err = s.score(p.Child(i), depth-1); err != nil {
			return sum, err
		}
		sum = score{sum.missing + part.missing, sum.sequence + part.sequence, part.ok}
	}
	if len(s.scores) < maxScores {
		s.scores[id] = sum
	}
	return sum, nil
}

// bucketAt is the score of the bucket that element i of a leaf names.
func (s *rootSearch) bucketAt(p page.Page, i int) (part score) {
	e, err := p.Leaf(i)
	if err != nil || !e.IsBucket() {
		return part
	}
	b, _, _ := page.DecodeBucket(e.Value)
	part.ok, part.sequence = true, b.Sequence
	if b.Root != 0 && !s.isOrphan(b.Root) {
		part.missing = 1
	}
	return part
}
