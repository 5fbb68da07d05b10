package tree

import "holdfast/internal/page"

// DefaultFill is the fill share that stands for "as Holdfast finds best".
const DefaultFill = 0.5

// FullFill is the largest fill share.
const FullFill = 1.0

// WideFill is the fill share that stands for leaves of as many pages, up to 16, as waste little: three elements of 1 kB fill three
// quarters of a page of 4 KiB, and 63 of them 16 pages. Each edit of such a leaf writes all of it.
const WideFill = 16.0

// TightFill is WideFill for elements that are appended and have some pages each: those share runs, too, that would leave more than
// one byte in 64 of their own pages empty. Each is copied once more for that.
const TightFill = 17.0

// cut ends one part of a node that is split.
type cut struct {
	end  int // index after its last item
	size int // bytes as one page run
}

// splitter decides how a node becomes pages.
type splitter struct {
	pageSize int
	fill     float64
	append   bool // items were added after all others, and nowhere else
	dense    bool // see DenseFill
}

const (
	minFill = 0.1
	maxFill = FullFill

	// roomyFill is the share that pages get when a node that was edited in the
	// middle becomes more than two: what random inserts need next is room.
	roomyFill = 0.7

	// maxGroup is the number of large values that may share a page run.
	maxGroup = 4
)

// maxPartBytes bounds the bytes before the last element of a part: offsets in a
// page have 32 bits.
const maxPartBytes int64 = 1 << 31

// split adds the parts of n, which replaces a run of so many pages, at least one, to
// cuts, which is empty.
func (s splitter) split(n *node, pages uint64, cuts []cut) []cut {
	switch {
	case n.fill > 0:
		s.fill = n.fill
		cuts = s.pack(n, cuts)
	case n.whole && uint64(n.size) <= pages*uint64(s.pageSize) && len(n.items) <= page.MaxCount:
		cuts = append(cuts, cut{end: len(n.items), size: n.size})
	default:
		cuts = s.choose(n, cuts)
	}
	if int64(n.size) > maxPartBytes {
		return bound(n.items, cuts)
	}
	return cuts
}

// bound ends parts before an element that would lie too far away.
func bound(items []item, cuts []cut) []cut {
	var bounded []cut
	from := 0
	for _, c := range cuts {
		size := page.HeaderSize
		for i := from; i < c.end; i++ {
			if int64(size) > maxPartBytes {
				bounded = append(bounded, cut{end: i, size: size})
				size = page.HeaderSize
			}
			size += itemSize(&items[i])
		}
		bounded = append(bounded, cut{end: c.end, size: size})
		from = c.end
	}
	return bounded
}

// choose decides on the parts. One that is longer than a page holds at most
// maxGroup items, but with WideFill.
func (s splitter) choose(n *node, cuts []cut) []cut {
	if s.fill >= WideFill {
		if n.leaf {
			return s.widen(n.items, cuts)
		}
		s.fill = DefaultFill
	}
	if s.fill == DenseFill {
		s.dense, s.fill = n.leaf, DefaultFill
	}
	if s.fill != DefaultFill {
		return s.splitAt(n, cuts, int(min(max(s.fill, minFill), maxFill)*float64(s.pageSize)))
	}
	if n.size <= s.full() && len(n.items) <= page.MaxCount {
		return append(cuts, cut{end: len(n.items), size: n.size})
	}
	target := s.target(n.size)
	left := n.size // of what is not in a part yet, as one page
	for from := 0; from < len(n.items); {
		if left <= s.full() && len(n.items)-from <= page.MaxCount {
			cuts = append(cuts, cut{end: len(n.items), size: left})
			break
		}
		c := s.part(n.items, from, target)
		if !n.leaf && c.end == from+1 {
			c = s.pair(n.items, from)
		}
		cuts = append(cuts, c)
		left -= c.size - page.HeaderSize
		from = c.end
	}
	return s.tail(n, cuts)
}

// maxWideWaste is the share, one in so many, of its pages that a leaf may leave empty and not be made longer.
const maxWideWaste = 64

// widen makes parts for WideFill.
func (s splitter) widen(items []item, cuts []cut) []cut {
	for from := 0; from < len(items); {
		c := s.widePart(items, from)
		cuts = append(cuts, c)
		from = c.end
	}
	if len(cuts) == 0 {
		cuts = append(cuts, cut{size: page.HeaderSize})
	}
	return cuts
}

// widePart is the part that begins with item from: of those that fill whole pages, with a seal, the first one that wastes little,
// or else the one that wastes least. An item of more than 16 pages is a part of its own.
func (s splitter) widePart(items []item, from int) (best cut) {
	waste := 2.0
	size := page.HeaderSize
	for i := from; i < len(items) && i-from < page.MaxCount; i++ {
		size += itemSize(&items[i])
		pages := (size + page.SealSize + s.pageSize - 1) / s.pageSize
		if pages > WideFill {
			if i == from {
				return cut{end: i + 1, size: size}
			}
			break
		}
		if i+1 < len(items) && (size+itemSize(&items[i+1])+page.SealSize+s.pageSize-1)/s.pageSize == pages {
			continue // the next one fits, too
		}
		w := 1 - float64(size)/float64(pages*s.pageSize)
		if w < waste {
			best, waste = cut{end: i + 1, size: size}, w
		}
		if w <= 1.0/maxWideWaste {
			break
		}
	}
	if best.end == 0 { // as many as a page can count
		best = cut{end: min(from+page.MaxCount, len(items)), size: size}
	}
	return best
}

// tail sees to it that the last part of several has more than one element.
func (s splitter) tail(n *node, cuts []cut) []cut {
	k := len(cuts)
	if k < 2 || cuts[k-1].end-cuts[k-2].end != 1 {
		return cuts
	}
	if n.leaf {
		s.giveLast(n.items, cuts)
		return cuts
	}
	return evenTail(n.items, cuts)
}

// pack makes pages that are filled up to the share s.fill.
func (s splitter) pack(n *node, cuts []cut) []cut {
	for from := 0; from < len(n.items); {
		c := s.packPart(from, len(n.items), func(i int) int { return itemSize(&n.items[i]) })
		if !n.leaf && c.end == from+1 {
			c = s.pair(n.items, from)
		}
		cuts = append(cuts, c)
		from = c.end
	}
	if len(cuts) == 0 {
		cuts = append(cuts, cut{size: page.HeaderSize})
	}
	return s.tail(n, cuts)
}

// packPart is the part that begins with element from of n: as much of a page as is to be
// filled, and two elements if they fit; or large ones, as few pages as they take.
func (s splitter) packPart(from, n int, size func(int) int) cut {
	threshold := int(min(max(s.fill, minFill), maxFill) * float64(s.pageSize))
	used, i := page.HeaderSize, from
	for ; i < n && i-from < page.MaxCount; i++ {
		next := used + size(i)
		if next > s.full() || i-from >= minKeys && next > threshold {
			break
		}
		used = next
	}
	if i == from {
		return s.groupOf(from, n, size)
	}
	return cut{end: i, size: used}
}

// giveLast gives the last part, a leaf of one element, a second one if the part before
// it can spare one and there is room: as with bbolt, small elements are not alone in a
// page. (A test of bbolt's relies on it.)
func (s splitter) giveLast(items []item, cuts []cut) {
	prev, last := &cuts[len(cuts)-2], &cuts[len(cuts)-1]
	from := 0
	if len(cuts) > 2 {
		from = cuts[len(cuts)-3].end
	}
	moved := itemSize(&items[prev.end-1])
	if prev.end-from <= minKeys || last.size+moved > s.full() {
		return
	}
	prev.end--
	prev.size -= moved
	last.size += moved
}

// evenTail gives the last part, a branch of one child, another: from the part
// before it if that can spare one, else the two become one.
func evenTail(items []item, cuts []cut) []cut {
	k := len(cuts)
	from := 0
	if k > 2 {
		from = cuts[k-3].end
	}
	prev, last := &cuts[k-2], &cuts[k-1]
	if prev.end-from > 2 {
		prev.end--
		moved := itemSize(&items[prev.end])
		prev.size -= moved
		last.size += moved
		return cuts
	}
	prev.size += last.size - page.HeaderSize
	prev.end = last.end
	return cuts[:k-1]
}

// minKeys is the number of elements that a part has at least when the caller
// chose the fill share.
const minKeys = 2

// splitAt splits where a caller who sets the fill share expects it: as bbolt
// does, each part ends before the element with which it would exceed threshold,
// and has two at least.
func (s splitter) splitAt(n *node, cuts []cut, threshold int) []cut {
	items, left := n.items, n.size
	from := 0
	for len(items)-from > 2*minKeys && (left >= s.pageSize || len(items)-from > page.MaxCount) {
		size := page.HeaderSize
		i := from
		for ; i < len(items)-minKeys && i-from < page.MaxCount; i++ {
			next := size + itemSize(&items[i])
			if i-from >= minKeys && next > threshold {
				break
			}
			size = next
		}
		cuts = append(cuts, cut{end: i, size: size})
		left -= size - page.HeaderSize
		from = i
	}
	return append(cuts, cut{end: len(items), size: left})
}

// full is the size of a page that is full, in bytes: it has room for a seal. (Elements
// of some sizes fill a page to its end; with these no page of a bulk load had one.)
// That goes for files without seals too, which can be given some.
func (s splitter) full() int { return fullPage(s.pageSize) }

func fullPage(pageSize int) int { return pageSize - page.SealSize }

// target is the number of bytes after which a part ends.
func (s splitter) target(size int) int {
	if s.append {
		return s.full()
	}
	room := s.full() - page.HeaderSize
	parts := 2
	switch {
	case s.dense:
		parts = max(parts, int(float64(size)/(denseShare*float64(room)))+1)
	case size > 2*room:
		parts = int(float64(size)/(roomyFill*float64(room))) + 1
	}
	return size/parts + page.HeaderSize
}

// part gathers items from index from on, up to target bytes and one page.
func (s splitter) part(items []item, from, target int) cut {
	size := page.HeaderSize
	i := from
	for ; i < len(items) && i-from < page.MaxCount; i++ {
		next := size + itemSize(&items[i])
		if next > s.full() || i > from && next > target {
			break
		}
		size = next
	}
	if i == from {
		return s.group(items, from)
	}
	return cut{end: i, size: size}
}

// group gathers large items, the first of which does not fit into one page with a
// seal: as many as waste the smallest share of their last page and, if they are
// several, leave room for one.
func (s splitter) group(items []item, from int) cut {
	return s.groupOf(from, len(items), func(i int) int { return itemSize(&items[i]) })
}

// groupOf is group of n elements of which only the sizes are known.
func (s splitter) groupOf(from, n int, itemSize func(int) int) cut {
	var best cut
	bestWaste := 2.0
	size := page.HeaderSize
	for i := from; i < n && i-from < maxGroup; i++ {
		size += itemSize(i)
		pages := (size + s.pageSize - 1) / s.pageSize
		left := pages*s.pageSize - size
		if i > from && left < page.SealSize {
			continue
		}
		waste := float64(left) / float64(pages*s.pageSize)
		if waste < bestWaste {
			best, bestWaste = cut{end: i + 1, size: size}, waste
		}
		if waste < 1.0/16 {
			break
		}
	}
	return best
}

// pair is the part of a branch that begins at from and holds two children: a
// branch of one is useless, so long keys make it longer than a page.
func (s splitter) pair(items []item, from int) cut {
	end := min(from+2, len(items))
	size := page.HeaderSize
	for i := from; i < end; i++ {
		size += itemSize(&items[i])
	}
	return cut{end: end, size: size}
}
