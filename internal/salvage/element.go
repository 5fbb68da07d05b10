package salvage

import (
	"bytes"
	"encoding/binary"
	"slices"

	"holdfast/internal/page"
)

// elementBounds is where the content of element i of a run begins and ends, as it says.
func elementBounds(run []byte, leaf bool, i int) (start, end uint64) {
	at := page.HeaderSize + i*page.LeafElementSize
	b := run[at : at+page.LeafElementSize]
	u32 := func(o int) uint64 { return uint64(binary.NativeEndian.Uint32(b[o:])) }
	if leaf {
		start = uint64(at) + u32(4)
		return start, start + u32(8) + u32(12)
	}
	start = uint64(at) + u32(0)
	return start, start + u32(4)
}

// sound are the elements of a page that can be what was written, ascending. An encoder
// packs a page: so an element that ends where the next one begins is where it
// was put, and of its length. Of keys that do not ascend as few are left out as can be.
func sound(p page.Page, within bounds) (good []int) {
	n, run := p.Count(), p.Bytes()
	packed := uint64(page.HeaderSize + n*page.LeafElementSize) // where the element before ends
	var keys [][]byte
	for i := range n {
		start, end := elementBounds(run, p.IsLeaf(), i)
		fits := end <= uint64(len(run)) && start >= uint64(page.HeaderSize+n*page.LeafElementSize)
		if i+1 < n {
			next, _ := elementBounds(run, p.IsLeaf(), i+1)
			fits = fits && end == next
		} else {
			fits = fits && start == packed
		}
		packed = end
		if !fits {
			continue
		}
		key, err := p.Key(i)
		if err != nil || len(key) > page.MaxKeySize || !within.has(key) || p.IsLeaf() && !plausible(p, i) {
			continue
		}
		good, keys = append(good, i), append(keys, key)
	}
	if slices.IsSortedFunc(keys, compareStrictly) {
		return good
	}
	var kept []int
	for _, at := range ascending(keys) {
		kept = append(kept, good[at])
	}
	return kept
}

// compareStrictly makes equal keys unsorted.
func compareStrictly(a, b []byte) int {
	if c := bytes.Compare(a, b); c != 0 {
		return c
	}
	return -1
}

// plausible tells whether element i of a leaf can be what a database holds.
func plausible(p page.Page, i int) bool {
	key, value, flags, ok := p.LeafAt(i)
	return ok && flags <= page.BucketFlag && len(key) > 0 && len(value) <= page.MaxValueSize
}

// ascending is the longest part of keys that ascends, by index.
func ascending(keys [][]byte) []int {
	before := make([]int, len(keys)) // the one before in the best row that ends here
	var ends []int                   // of the rows of each length, the one with the lowest key
	for i, key := range keys {
		at, _ := slices.BinarySearchFunc(ends, key, func(e int, k []byte) int { return bytes.Compare(keys[e], k) })
		before[i] = -1
		if at > 0 {
			before[i] = ends[at-1]
		}
		if at == len(ends) {
			ends = append(ends, i)
		} else {
			ends[at] = i
		}
	}
	if len(ends) == 0 {
		return nil
	}
	row := make([]int, len(ends))
	for at, i := len(ends)-1, ends[len(ends)-1]; at >= 0; at-- {
		row[at] = i
		i = before[i]
	}
	return row
}
