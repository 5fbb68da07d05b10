package bucket

import (
	"holdfast/internal/tree"
)

// Spill writes what was changed in the buckets below b, the root bucket, to pages of w, and
// gives back the memory that it took: the transaction goes on with those pages. Small buckets,
// and b itself, stay as they are. free: none of the buckets refers to memory or pages from before
// any more, so what was given up of the transaction's own pages can be taken again. After an error
// the transaction can only be rolled back.
func (b *Bucket) Spill(w tree.Writer) (free bool, err error) {
	s := spill{w: w, free: true, kept: b.tx.kept[:0]}
	if err := s.below(b); err != nil {
		return false, err
	}
	b.tree.OwnValues()
	b.tx.kept = append(s.kept, &b.tree)
	s.free = s.free && !b.tree.Early()
	b.tx.Edit.Sweep(b.tx.kept)
	return s.free, nil
}

// spill is what Spill has come to.
type spill struct {
	w    tree.Writer
	free bool
	kept []*tree.Tree // that have nodes still
}

func (s *spill) below(b *Bucket) error {
	for _, c := range b.children.sorted() {
		child := c.bucket
		if err := s.below(child); err != nil {
			return err
		}
		child.altered = child.altered || child.tree.Edited()
		if err := child.tree.Spill(s.w, child.fillShare(), s.w.PageSize()/inlineShare); err != nil {
			return err
		}
		if child.tree.Edited() {
			child.tree.Own()
			s.kept = append(s.kept, &child.tree)
		}
		s.free = s.free && !child.tree.Holds(child.early)
	}
	return nil
}
