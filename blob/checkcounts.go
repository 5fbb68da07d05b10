package blob

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// counting is the chunks of a range of keys, with what names them. Of a store that is
// larger than one there are several, each of which needs a pass over all nodes.
type counting struct {
	from, to []byte // nil: the end
	keys     []chunkKey
	lengths  []int32
	parents  []uint64
	users    []uint64
}

const countedSize = 33 + 4 + 8 + 8 // bytes of memory for a chunk

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
		if err := c.countUsers(n); err != nil {
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
	full := fmt.Errorf("enough")
	err := c.each(from, nil, func(k chunkKey, e entry) error {
		if len(n.keys) == limit {
			key := k.encode()
			n.to = key[:]
			return full
		}
		n.keys = append(n.keys, k)
		n.lengths = append(n.lengths, int32(e.length))
		return nil
	}, nil)
	if err == full {
		err = nil
	}
	n.parents, n.users = make([]uint64, len(n.keys)), make([]uint64, len(n.keys))
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
			return c.found(MissingChunk, child, false, "chunk %v is made of it", parent)
		}
		n.parents[i]++
		if child.level == 0 && int64(n.lengths[i]) != size {
			return c.found(WrongLength, child, false, "the index says %d bytes, and chunk %v %d", n.lengths[i], parent, size)
		}
		return nil
	})
}

func (c *checker) countUsers(n *counting) error {
	return c.users(func(k chunkKey, root string) error {
		i, ok, in := n.find(&k)
		switch {
		case ok:
			n.users[i]++
		case in && root != "":
			return c.found(MissingChunk, k, false, "%s", root)
		}
		return nil
	})
}

// users calls fn with each chunk that is named from outside; with root if it is not a
// record of the store that does, which records checks.
func (c *checker) users(fn func(k chunkKey, root string) error) error {
	err := c.s.leased(func(_ string, k chunkKey) error { return fn(k, "") })
	if err != nil {
		return err
	}
	ingests, err := c.s.ingestUsers()
	if err != nil {
		return err
	}
	for k, n := range ingests {
		for range n {
			if err := fn(k, ""); err != nil {
				return err
			}
		}
	}
	if c.o.Roots == nil {
		return nil
	}
	for ref, err := range c.o.Roots {
		if err == nil && ref.algorithm != c.s.options.Algorithm {
			err = fmt.Errorf("blob %v: %w", ref, ErrAlgorithm)
		}
		if err == nil && !ref.inlined {
			err = fn(ref.key(), "a root")
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
	marks := c.s.dead.Cursor()
	mark, _ := marks.Seek(n.from)
	i := 0
	err := c.each(n.from, n.to, func(k chunkKey, e entry) error {
		fixed, err := c.compareCounts(n, i, k, e)
		if err != nil {
			return err
		}
		i++
		if fixed != e {
			fixes = append(fixes, func() error { return c.s.putEntry(&k, &fixed) })
		}
		key := k.encode()
		for ; mark != nil && bytes.Compare(mark, key[:]) < 0; mark, _ = marks.Next() {
			if err := c.wrongMark(mark, &fixes); err != nil {
				return err
			}
		}
		marked := bytes.Equal(mark, key[:])
		if marked {
			mark, _ = marks.Next()
		}
		if marked == fixed.dead() {
			return nil
		}
		if c.o.Repair {
			fixes = append(fixes, func() error { return c.s.setMark(&k, fixed.dead()) })
		}
		if marked == e.dead() {
			return nil // it follows from the counts
		}
		return c.found(WrongMark, k, c.o.Repair, "%d parents, %d users, marked: %v", e.parents, e.users, marked)
	}, nil)
	for ; err == nil && mark != nil && (n.to == nil || bytes.Compare(mark, n.to) < 0); mark, _ = marks.Next() {
		err = c.wrongMark(mark, &fixes)
	}
	if err == nil {
		err = c.s.tx.Err()
	}
	for _, fix := range fixes {
		if err == nil {
			err = fix()
		}
	}
	return err
}

// wrongMark is for a mark of a chunk that is not in the index.
func (c *checker) wrongMark(mark []byte, fixes *[]func() error) error {
	mark = bytes.Clone(mark)
	if c.o.Repair {
		*fixes = append(*fixes, func() error { return c.s.dead.Delete(mark) })
	}
	k, err := parseKey(mark)
	if err != nil {
		return c.found(Malformed, chunkKey{}, c.o.Repair, "mark of a dead chunk: %v", err)
	}
	return c.found(WrongMark, k, c.o.Repair, "it is marked as dead and not in the index")
}

// compareCounts compares the counts of chunk i, and gives what a repair makes of its entry.
func (c *checker) compareCounts(n *counting, i int, k chunkKey, e entry) (fixed entry, err error) {
	fixed = e
	if i >= len(n.keys) || n.keys[i] != k {
		return e, fmt.Errorf("chunk %v: the index has changed meanwhile", k)
	}
	if n.parents[i] > e.parents || n.parents[i] < e.parents && !c.lossy {
		if c.o.Repair {
			fixed.parents = n.parents[i]
		}
		if err := c.found(WrongParents, k, c.o.Repair, "the index says %d, and nodes name it %d times", e.parents, n.parents[i]); err != nil {
			return e, err
		}
	}
	least, most := n.users[i], uint64(math.MaxUint64)
	if c.o.Roots != nil {
		most = least
	}
	if want := min(max(e.users, least), most); want != e.users {
		if c.o.Repair {
			fixed.users = want
		}
		if err := c.found(WrongUsers, k, c.o.Repair, "the index says %d, and there are %d", e.users, want); err != nil {
			return e, err
		}
	}
	return fixed, nil
}
