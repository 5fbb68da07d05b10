package salvage

import "holdfast/internal/page"

// findRoot chooses, of the orphans that can be the root of the database, the one whose
// buckets are there, then that of the highest sequences, as these only grow, then the
// last of the file. 0: there is none. others is how many more there are.
func (s *salvage) findRoot() (root page.ID, others int, err error) {
	type score struct {
		missing  int
		sequence uint64
	}
	var best score
	for id := page.FirstDataPage; id < s.pages; id++ {
		if !s.isOrphan(id) || s.is(id, markChild|markRoot) {
			continue
		}
		if err := s.ctx.Err(); err != nil {
			return 0, 0, err
		}
		o, ok := s.examine(id)
		if !ok || !o.buckets {
			continue
		}
		var now score
		budget := int(s.pages)
		if err := s.eachHeader(id, maxDepth, &budget, func(b page.Bucket) {
			if now.sequence += b.Sequence; b.Root != 0 && !s.isOrphan(b.Root) {
				now.missing++
			}
		}); err != nil {
			continue
		}
		others++
		if root == 0 || now.missing < best.missing || now.missing == best.missing && now.sequence >= best.sequence {
			root, best = id, now
		}
	}
	return root, max(others-1, 0), nil
}

// eachHeader calls fn for each header of a bucket in the tree below an orphan, of budget
// pages at most.
func (s *salvage) eachHeader(id page.ID, depth int, budget *int, fn func(page.Bucket)) error {
	p, err := s.load(id)
	if err != nil {
		return err
	}
	if *budget--; depth == 0 || *budget < 0 {
		return page.Corruptf(id, "the tree is deeper than any real one")
	}
	for i := range p.Count() {
		if !p.IsLeaf() {
			if err := s.eachHeader(p.Child(i), depth-1, budget, fn); err != nil {
				return err
			}
			continue
		}
		e, err := p.Leaf(i)
		if err != nil {
			return err
		}
		if !e.IsBucket() {
			return page.Corruptf(id, "a key among buckets")
		}
		b, _, _ := page.DecodeBucket(e.Value)
		fn(b)
	}
	return nil
}
