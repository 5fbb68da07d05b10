package space

import (
	"fmt"

	"holdfast/internal/page"
)

// checkInside verifies the invariants that no method shows.
func checkInside(s *Space) error {
	count, err := checkNode(s.free.root, s.free.height)
	if err != nil {
		return fmt.Errorf("free: %w", err)
	}
	if best := s.free.root.summary(sizeOf(s.free.height - 1)).best; best != s.free.best || count != s.free.count {
		return fmt.Errorf("free: %d members and %d in a row, recorded %d and %d", count, best, s.free.count, s.free.best)
	}
	sets := map[string]*extentSet{"pending": &s.pending}
	if s.open != nil {
		sets["own"], sets["freed"] = &s.open.own, &s.open.freed
	}
	for name, set := range sets {
		if err := checkExtents(set); err != nil {
			return fmt.Errorf("%s: %w", name, err)
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
			var members uint64
			got, members = slowSummary(n.leaf[i])
			count += members
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

// slowSummary computes a leaf's summary bit by bit, and counts the members.
func slowSummary(l *leaf) (sum summary, members uint64) {
	var run uint64
	for at := range leafPages {
		if l[at/64]>>(at%64)&1 == 0 {
			run = 0
			continue
		}
		members++
		run++
		sum.best = max(sum.best, run)
		if run == uint64(at)+1 {
			sum.head = run
		}
	}
	sum.tail = run
	return sum, members
}

// checkExtents verifies that runs are maximal and counted.
func checkExtents(s *extentSet) error {
	if err := checkOrder(&s.lengths); err != nil {
		return err
	}
	count, end := uint64(0), page.ID(0)
	for _, b := range s.lengths.blocks {
		for i := range b.keys {
			e := ext(b.keys[i], b.vals[i])
			if e.N == 0 || e.Start <= end {
				return fmt.Errorf("extent %v behind one that ends at %d", e, end)
			}
			count += e.N
			end = e.End()
		}
	}
	if count != s.count {
		return fmt.Errorf("%d members, recorded %d", count, s.count)
	}
	return nil
}

func checkOrder[V any](o *ordered[V]) error {
	size, last := 0, uint64(0)
	for i, b := range o.blocks {
		if len(b.keys) == 0 && len(o.blocks) > 1 {
			return fmt.Errorf("block %d is empty", i)
		}
		for _, key := range b.keys {
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
		for i := range b.keys {
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
