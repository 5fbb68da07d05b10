package bucket

import (
	"cmp"
	"errors"

	"holdfast/internal/page"
	"holdfast/internal/tree"
)

// EachRun visits the page runs of a root bucket and of all buckets in it.
func EachRun(src tree.Reader, root page.ID, visit func(page.Extent) error) error {
	return eachRun(&Tx{Source: src}, tree.Open(src, nil, root), 0, visit)
}

// KeysOnly tells whether the tree at root has keys, and no bucket, and if so how many pages
// it has. Where its first leaf has a bucket, or nothing, one path is read, however many
// buckets there are. A tree that cannot be read is not told of: what needs it says so.
func KeysOnly(src tree.Reader, root page.ID, limit uint64) (pages uint64, only bool) {
	t := tree.Open(src, nil, root)
	err := t.Walk(func(l *tree.Level) error {
		_, n := l.Base()
		if pages += n; pages > limit {
			return errEnough // the tree meets pages twice
		}
		if !l.IsLeaf() {
			return nil
		}
		if i, err := l.NextBucket(0); err != nil || i < l.Count() || l.Count() == 0 {
			return errEnough
		}
		return nil
	})
	return pages, err == nil
}

// Top reads what every program meets first: the pages from the root of the root bucket to its first leaf, and with
// buckets the root pages of those there, at most limit pages in all. It returns the damage that it meets.
func Top(src tree.Reader, root page.ID, buckets bool, limit int) error {
	read := func(*tree.Level) error {
		if limit--; limit < 0 {
			return errEnough
		}
		return nil
	}
	tx := &Tx{Source: src}
	t := tree.Open(src, nil, root)
	err := t.Walk(func(l *tree.Level) error {
		if err := read(l); err != nil || !l.IsLeaf() {
			return err
		}
		if !buckets {
			return errEnough
		}
		err := eachNested(l, tx, func(child *Bucket) error {
			err := child.tree.Walk(func(l *tree.Level) error { return cmp.Or(read(l), errRead) })
			if errors.Is(err, errRead) {
				return nil
			}
			return err
		})
		return cmp.Or(err, errEnough)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

var errRead = errors.New("the root page is read")

var errEnough = errors.New("enough is known")

func eachRun(tx *Tx, t tree.Tree, depth int, visit func(page.Extent) error) error {
	if depth > maxNesting {
		return page.Corruptf(t.Root(), "buckets are nested more than %d deep", maxNesting)
	}
	return t.Walk(func(l *tree.Level) error {
		if id, n := l.Base(); n != 0 {
			if err := visit(page.Extent{Start: id, N: n}); err != nil {
				return err
			}
		}
		return eachNested(l, tx, func(child *Bucket) error {
			return eachRun(tx, child.tree, depth+1, visit)
		})
	})
}

// eachNested visits the buckets whose headers l, if it is a leaf, holds.
func eachNested(l *tree.Level, tx *Tx, visit func(*Bucket) error) error {
	if !l.IsLeaf() {
		return nil
	}
	// On a damaged page many elements may share one inline bucket.
	room := l.Bytes()
	for next := 0; ; {
		i, err := l.NextBucket(next)
		if err != nil || i == l.Count() {
			return err
		}
		next = i + 1
		e, err := l.Element(i)
		if err != nil {
			return err
		}
		if room >= 0 {
			if room -= len(e.Value); room < 0 {
				id, _ := l.Base()
				return page.Corruptf(id, "the buckets in the page take more bytes than it has")
			}
		}
		if l.Inline() {
			return errNestedInline()
		}
		var child Bucket
		if err := child.openValue(tx, e.Value); err != nil {
			return err
		}
		if err := visit(&child); err != nil {
			return err
		}
	}
}

// Stats are the figures of a bucket with all buckets in it, named as in bbolt.
type Stats struct {
	BranchPageN     int
	BranchOverflowN int
	LeafPageN       int
	LeafOverflowN   int

	KeyN  int
	Depth int

	BranchAlloc int
	BranchInuse int
	LeafAlloc   int
	LeafInuse   int

	BucketN           int
	InlineBucketN     int
	InlineBucketInuse int
}

// Add adds o to s. Depth becomes the larger of the two.
func (s *Stats) Add(o Stats) {
	s.BranchPageN += o.BranchPageN
	s.BranchOverflowN += o.BranchOverflowN
	s.LeafPageN += o.LeafPageN
	s.LeafOverflowN += o.LeafOverflowN
	s.KeyN += o.KeyN
	s.Depth = max(s.Depth, o.Depth)
	s.BranchAlloc += o.BranchAlloc
	s.BranchInuse += o.BranchInuse
	s.LeafAlloc += o.LeafAlloc
	s.LeafInuse += o.LeafInuse
	s.BucketN += o.BucketN
	s.InlineBucketN += o.InlineBucketN
	s.InlineBucketInuse += o.InlineBucketInuse
}

// Stats walks the bucket and all buckets in it. A walk that meets more than
// maxPages pages goes in circles and ends with an error.
func (b *Bucket) Stats(pageSize int, maxPages uint64) (Stats, error) {
	w := statsWalk{pageSize: pageSize, pagesLeft: maxPages}
	return w.bucket(b, 0)
}

type statsWalk struct {
	pageSize  int
	pagesLeft uint64
}

func (w *statsWalk) bucket(b *Bucket, nesting int) (Stats, error) {
	if nesting > maxNesting {
		return Stats{}, page.Corruptf(b.Root(), "buckets are nested more than %d deep", maxNesting)
	}
	s := Stats{BucketN: 1}
	inline := b.Root() == 0
	if inline {
		s.InlineBucketN = 1
	}
	var nested Stats
	err := b.tree.Walk(func(l *tree.Level) error {
		if err := w.level(&s, l, inline); err != nil {
			return err
		}
		return eachNested(l, b.tx, func(child *Bucket) error {
			cs, err := w.bucket(child, nesting+1)
			nested.Add(cs)
			return err
		})
	})
	if err != nil {
		return s, err
	}
	s.BranchAlloc = (s.BranchPageN + s.BranchOverflowN) * w.pageSize
	s.LeafAlloc = (s.LeafPageN + s.LeafOverflowN) * w.pageSize
	depth := s.Depth + nested.Depth
	s.Add(nested)
	s.Depth = depth
	return s, nil
}

// level adds one page or node to s.
func (w *statsWalk) level(s *Stats, l *tree.Level, inline bool) error {
	s.Depth = max(s.Depth, l.Depth+1)
	used, err := l.UsedBytes()
	if err != nil {
		return err
	}
	id, pages := l.Base()
	if room := l.Bytes(); room >= 0 && used > room {
		return page.Corruptf(id, "the elements in the page take more bytes than it has")
	}
	if pages > w.pagesLeft {
		return page.Corruptf(id, "the walk meets more pages than the file has: pages form a cycle")
	}
	w.pagesLeft -= pages
	overflow := max(int(pages), 1) - 1
	switch {
	case !l.IsLeaf():
		s.BranchPageN++
		s.BranchOverflowN += overflow
		s.BranchInuse += used
	case inline:
		s.KeyN += l.Count()
		s.InlineBucketInuse += used
	default:
		s.KeyN += l.Count()
		s.LeafPageN++
		s.LeafOverflowN += overflow
		s.LeafInuse += used
	}
	return nil
}
