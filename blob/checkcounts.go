package blob

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// counting is the chunks of a range of keys, with what names them. Of a store that is
// larger than one there are several, each of which needs a pass over all nodes.
type counting struct {
	from, to []byte // nil: the end
	keys     []chunkKey
	lengths  []int32
	parents  []uint64
	users    []uint64 // but for leases
	leased   []uint32
}

const countedSize = 33 + 4 + 8 + 8 + 4 // bytes of memory for a chunk

// counts compares the counts of all chunks with what names them.
func (c *checker) counts() error {
	for from := []byte(nil); ; {
		n, err := c.chunks(from)
		if err != nil {
			return err
		}
		c.stats.Passes++
		if err := c.countParents(n); err != nil {
			return err
		}
		if err := c.countRecords(n); err != nil {
			return err
		}
		if err := c.compare(n); err != nil {
			return err
		}
		if from = n.to; from == nil {
			return nil
		}
	}
}

// chunks takes up as many chunks as there is memory for.
func (c *checker) chunks(from []byte) (*counting, error) {
	n := &counting{from: from}
	limit := max(c.o.Memory/countedSize, 1)
	err := c.each(from, nil, func(k chunkKey, e entry) error {
		if len(n.keys) == limit {
			key := k.encode()
			n.to = key[:]
			return errEnough
		}
		n.keys = append(n.keys, k)
		n.lengths = append(n.lengths, int32(e.length))
		return nil
	}, nil)
	n.parents, n.users, n.leased = make([]uint64, len(n.keys)), make([]uint64, len(n.keys)), make([]uint32, len(n.keys))
	return n, err
}

// find is where k is; in says whether it would be in this range.
func (n *counting) find(k *chunkKey) (i int, ok, in bool) {
	key := k.encode()
	if bytes.Compare(key[:], n.from) < 0 || n.to != nil && bytes.Compare(key[:], n.to) >= 0 {
		return 0, false, false
	}
	i, ok = slices.BinarySearchFunc(n.keys, *k, func(a, b chunkKey) int { return a.compare(&b) })
	return i, ok, true
}

func (c *checker) countParents(n *counting) error {
	return c.children(func(parent, child chunkKey, size int64) error {
		i, ok, in := n.find(&child)
		switch {
		case !in:
			return nil
		case !ok:
			return c.missing(child, "chunk %v is made of it", parent)
		}
		n.parents[i]++
		if child.level == 0 && int64(n.lengths[i]) != size {
			return c.found(WrongLength, child, false, "the index says %d bytes, and chunk %v %d", n.lengths[i], parent, size)
		}
		return nil
	})
}

// missing reports a chunk that something names and the index does not have, unless it cannot be known whether it has.
func (c *checker) missing(k chunkKey, format string, args ...any) error {
	if c.unindexed(&k) {
		return nil
	}
	return c.found(MissingChunk, k, false, format, args...)
}

// countRecords counts what leases, ingests and roots name. That a chunk which a record of the store names is
// missing, records has found.
func (c *checker) countRecords(n *counting) error {
	err := c.leased(func(k chunkKey) error {
		if i, ok, _ := n.find(&k); ok {
			n.leased[i]++
		}
		return nil
	})
	for _, each := range []func(func(k chunkKey) error) error{c.ingested, c.s.held} {
		if err == nil {
			err = each(func(k chunkKey) error {
				if i, ok, _ := n.find(&k); ok {
					n.parents[i]++
				}
				return nil
			})
		}
	}
	if err != nil {
		return err
	}
	return c.roots(func(k chunkKey, size int64) error {
		i, ok, in := n.find(&k)
		switch {
		case ok:
			n.users[i]++
			return c.rootSize(&k, size)
		case in:
			return c.missing(k, "a root")
		}
		return nil
	})
}

// rootSize compares the size that one of the caller's references has with that of the blob.
func (c *checker) rootSize(k *chunkKey, size int64) error {
	has, wrong, err := c.otherSize(k, size)
	if err != nil || !wrong {
		return err
	}
	return c.found(WrongLength, *k, false, "the blob has %d bytes, and a root says %d", has, size)
}

// otherSize gives how much content a chunk of the index stands for if that is known, and not what is said.
func (c *checker) otherSize(k *chunkKey, said int64) (size int64, wrong bool, err error) {
	damage, err := c.try(func() error {
		e, ok, err := c.s.lookup(k)
		if err != nil || !ok {
			return unlessCorrupt(err)
		}
		if k.level == 0 && int64(e.length) == said {
			return nil // and the leaf need not be read
		}
		if _, err := c.s.loadEntry(k, &e); err != nil {
			return nil // the index may have the wrong length
		}
		size, err = c.s.sizeOf(k, &e)
		wrong = err == nil && size != said
		return nil
	})
	return size, wrong && damage == nil, err
}

// unlessCorrupt is err, unless it is of an entry of the index that is malformed: that is reported as such.
func unlessCorrupt(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return nil
	}
	return err
}

// roots calls fn with each chunk that the caller's references name, and how much content they say it has.
func (c *checker) roots(fn func(k chunkKey, size int64) error) error {
	if c.o.Roots == nil {
		return nil
	}
	for ref, err := range c.o.Roots {
		if err == nil && ref.algorithm != c.s.options.Algorithm {
			err = fmt.Errorf("blob %v: %w", ref, ErrAlgorithm)
		}
		if err == nil && !ref.inlined {
			err = fn(ref.key(), ref.size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// compare compares what was counted with what the index says, and the marks of the dead.
func (c *checker) compare(n *counting) error {
	var fixes []func() error
	marked, err := c.marks(n, &fixes)
	if err != nil {
		return err
	}
	i := 0
	err = c.each(n.from, n.to, func(k chunkKey, e entry) error {
		at := i
		i++
		fixed, err := c.compareCounts(n, at, k, e)
		if err != nil {
			return err
		}
		if c.o.Repair && fixed.dead() && fixed.lost() { // nothing of it is there, and nothing asks for it
			fixes = append(fixes, func() error { return c.takeOff(&k, &fixed) })
			return nil
		}
		if c.o.Repair && fixed.dead() && !e.dead() {
			c.dying(k, &fixed)
		}
		if fixed != e {
			fixes = append(fixes, func() error { return c.s.putEntry(&k, &fixed) })
		}
		key := k.encode()
		if marked[at] == fixed.dead() || c.inGap(string(deadName), key[:]) {
			return nil
		}
		if c.o.Repair {
			fixes = append(fixes, func() error { return c.s.setMark(&k, fixed.dead()) })
		}
		if marked[at] == e.dead() {
			return nil // it follows from the counts
		}
		return c.found(WrongMark, k, c.o.Repair, "%d parents, %d users, marked: %v", e.parents, e.users, marked[at])
	}, nil)
	if err == nil {
		err = c.unchanged()
	}
	for _, fix := range fixes {
		if err == nil {
			err = fix()
		}
	}
	return err
}

// dying looks at the bytes of a chunk that turns out to be dead: they may be those of another one.
func (c *checker) dying(k chunkKey, e *entry) {
	p, err := c.s.content(e)
	if err != nil {
		return
	}
	is := c.whatIs(spot{e.packed, e.id}, p, c.s.options.sum(p))
	if k != is[0] && k != is[1] {
		c.strays = append(c.strays, stray{owner: k, at: spot{e.packed, e.id}, is: is})
	}
}

// marks tells which of the chunks are marked as dead, and finds marks of those that are not in the index.
func (c *checker) marks(n *counting, fixes *[]func() error) ([]bool, error) {
	marked := make([]bool, len(n.keys))
	return marked, c.scan(string(deadName), c.s.dead, n.from, n.to, func(mark, _ []byte) error {
		k, err := parseKey(mark)
		if err == nil {
			if i, ok, _ := n.find(&k); ok {
				marked[i] = true
				return nil
			}
			if c.unindexed(&k) {
				return nil
			}
		}
		mark = bytes.Clone(mark)
		if c.o.Repair {
			*fixes = append(*fixes, func() error { return c.s.dead.Delete(mark) })
		}
		if err != nil {
			return c.found(Malformed, chunkKey{}, c.o.Repair, "mark of a dead chunk: %v", err)
		}
		return c.found(WrongMark, k, c.o.Repair, "it is marked as dead and not in the index")
	})
}

// compareCounts compares the counts of chunk i, and gives what a repair makes of its entry.
func (c *checker) compareCounts(n *counting, i int, k chunkKey, e entry) (fixed entry, err error) {
	fixed = e
	if i >= len(n.keys) || n.keys[i] != k {
		return e, fmt.Errorf("chunk %v: %w", k, errChanged)
	}
	if n.parents[i] > e.parents || n.parents[i] < e.parents && !c.lossy {
		if c.o.Repair {
			fixed.parents = n.parents[i]
		}
		if err := c.found(WrongParents, k, c.o.Repair, "the index says %d, and nodes name it %d times", e.parents, n.parents[i]); err != nil {
			return e, err
		}
	}
	// Uses that are not of leases are as many as the caller says, or, if he does not, as the index does.
	leased := max(uint64(n.leased[i]), c.atLeast(e.leased))
	users := leased + e.users - min(e.users, e.leased)
	if c.o.Roots != nil {
		users = max(leased+n.users[i], c.atLeast(e.users))
	}
	if users != e.users || leased != e.leased {
		if c.o.Repair {
			fixed.users, fixed.leased = users, leased
		}
		if err := c.found(WrongUsers, k, c.o.Repair, "recorded: %d users, %d of them leases; found: %d, %d", e.users, e.leased, users, leased); err != nil {
			return e, err
		}
	}
	return fixed, nil
}

// atLeast is what a count is at least, besides what was counted: it may be right where something could not be read.
func (c *checker) atLeast(count uint64) uint64 {
	if c.damage != nil {
		return count
	}
	return 0
}
