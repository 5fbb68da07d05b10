package space

import (
	"fmt"

	"holdfast/internal/page"
)

// checkInside verifies the invariants that no method shows.
func checkInside(s *Space) error {
	sets := map[string]*pageSet{"free": &s.free, "pending": &s.pending}
	if s.open != nil {
		sets["own"], sets["freed"] = &s.open.own, &s.open.freed
	}
	for name, set := range sets {
		count, err := checkNode(set.root, set.height)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if sum := set.root.summary(sizeOf(set.height - 1)); sum != set.sum || count != set.count {
			return fmt.Errorf("%s: %d members and summary %v, recorded %d and %v", name, count, sum, set.count, set.sum)
		}
	}
	if err := checkOrder(&s.births.entries); err != nil {
		return fmt.Errorf("births: %w", err)
	}
	if err := checkOrder(&s.pins); err != nil {
		return fmt.Errorf("pins: %w", err)
	}
	return checkHeaps(s)
}

// checkNode verifies the summaries below n and counts the members.
func checkNode(n *node, level int) (uint64, error) {
	var count uint64
	size := sizeOf(level - 1)
	for i, sum := range n.sum {
		var got summary
		switch {
		case n.child[i] != nil && n.leaf[i] != nil:
			return 0, fmt.Errorf("a child that is node and leaf")
		case n.child[i] != nil:
			below, err := checkNode(n.child[i], level-1)
			if err != nil {
				return 0, err
			}
			count += below
			got = n.child[i].summary(sizeOf(level - 2))
		case n.leaf[i] != nil:
			got = n.leaf[i].summary()
			for at := 0; at < leafPages; at++ {
				if n.leaf[i][at/64]>>(at%64)&1 != 0 {
					count++
				}
			}
		default:
			got = uniform(size, sum.best > 0)
			count += got.best
		}
		uniform := got.best == 0 || got.best == size
		if got != sum || uniform != (n.child[i] == nil && n.leaf[i] == nil) {
			return 0, fmt.Errorf("child %d of level %d: summary %v, recorded %v", i, level, got, sum)
		}
	}
	return count, nil
}

func checkOrder[V any](o *ordered[V]) error {
	size, last := 0, uint64(0)
	for i, b := range o.blocks {
		if b.n == 0 && len(o.blocks) > 1 {
			return fmt.Errorf("block %d is empty", i)
		}
		for _, key := range b.keys[:b.n] {
			if size > 0 && key <= last {
				return fmt.Errorf("key %d behind %d", key, last)
			}
			last = key
			size++
		}
	}
	if size != o.size {
		return fmt.Errorf("%d entries, recorded %d", size, o.size)
	}
	return nil
}

// checkHeaps verifies that every pending extent has the right witness, and that
// the heaps are heaps.
func checkHeaps(s *Space) error {
	var pages uint64
	var walk func(h *held, witness page.TxID) error
	walk = func(h *held, witness page.TxID) error {
		if h == nil {
			return nil
		}
		pages += h.extent.N
		at, ok := s.pinnedBefore(h.freed)
		if !ok || page.TxID(s.pins.key(at)) != witness || h.born > witness {
			return fmt.Errorf("extent %v, born %d, freed %d, has witness %d", h.extent, h.born, h.freed, witness)
		}
		for _, c := range []*held{h.left, h.right} {
			if c != nil && c.born > h.born {
				return fmt.Errorf("heap of %d is out of order", witness)
			}
		}
		if rankOf(h.left) < rankOf(h.right) || h.rank != rankOf(h.right)+1 {
			return fmt.Errorf("heap of %d leans right", witness)
		}
		if err := walk(h.left, witness); err != nil {
			return err
		}
		return walk(h.right, witness)
	}
	for _, b := range s.pins.blocks {
		for i := range b.n {
			if err := walk(b.vals[i].heap, page.TxID(b.keys[i])); err != nil {
				return err
			}
		}
	}
	if pages != s.pending.count {
		return fmt.Errorf("%d pages in heaps, %d pending", pages, s.pending.count)
	}
	return nil
}
