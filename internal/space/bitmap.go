package space

import "math/bits"

// A leaf is the bitmap of leafPages consecutive pages: a set bit is a member.
type leaf [leafWords]uint64

const (
	leafBits  = 11
	leafPages = 1 << leafBits
	leafWords = leafPages / 64
	allOnes   = ^uint64(0)
)

// fill makes the pages [lo, hi) members, or no members.
func (l *leaf) fill(lo, hi int, member bool) {
	for w := lo / 64; w*64 < hi; w++ {
		mask := maskOf(w, lo, hi)
		if member {
			l[w] |= mask
		} else {
			l[w] &^= mask
		}
	}
}

// maskOf is the bits of word w that stand for pages of [lo, hi).
func maskOf(w, lo, hi int) uint64 {
	mask := allOnes
	if lo > w*64 {
		mask &= allOnes << (lo - w*64)
	}
	if end := (w + 1) * 64; hi < end {
		mask &= allOnes >> (end - hi)
	}
	return mask
}

// flip is fill for pages that are not yet so. Where one is, it stops, and returns
// that page and false.
func (l *leaf) flip(lo, hi int, member bool) (at int, ok bool) {
	for w := lo / 64; w*64 < hi; w++ {
		mask, already := maskOf(w, lo, hi), l[w]
		if !member {
			already = ^already
		}
		if already &= mask; already != 0 {
			return w*64 + bits.TrailingZeros64(already), false
		}
		l[w] ^= mask
	}
	return 0, true
}

// next finds the first page of [from, to) that is a member (or the first that
// is none). It returns to when there is none.
func (l *leaf) next(from, to int, member bool) int {
	for w := from / 64; w*64 < to; w++ {
		x := l[w]
		if !member {
			x = ^x
		}
		if from > w*64 {
			x &= allOnes << (from - w*64)
		}
		if x != 0 {
			return min(to, w*64+bits.TrailingZeros64(x))
		}
	}
	return to
}

// runBefore is where the run of members begins that ends before page end, or
// end when the page before is none.
func (l *leaf) runBefore(end int) int {
	for w := (end - 1) / 64; end > 0; w-- {
		// The page before end moves to the top of the word.
		n := bits.LeadingZeros64(^(l[w] << ((w+1)*64 - end)))
		if n < end-w*64 {
			return end - n
		}
		end = w * 64
	}
	return 0
}

// find returns where the first run of n members begins. The caller knows from
// the summary that there is one.
func (l *leaf) find(n int) int {
	run := 0 // members directly before this word
	for w, x := range l {
		if x == allOnes {
			run += 64
			if run >= n {
				return (w+1)*64 - run
			}
			continue
		}
		if run+bits.TrailingZeros64(^x) >= n {
			return w*64 - run
		}
		if n <= 64 {
			if starts := erode(x, n); starts != 0 {
				return w*64 + bits.TrailingZeros64(starts)
			}
		}
		run = bits.LeadingZeros64(^x)
	}
	panic("space: summary promises a run that its bitmap does not have")
}

// set makes the pages [lo, hi) members, which none of them was, and returns the
// new summary. Only the run that they become part of can be longer than before.
func (l *leaf) set(lo, hi int, old summary) summary {
	l.fill(lo, hi, true)
	begin, end := l.runBefore(lo), l.next(hi, leafPages, false)
	if begin == 0 {
		old.head = uint64(end)
	}
	if end == leafPages {
		old.tail = uint64(leafPages - begin)
	}
	old.best = max(old.best, uint64(end-begin))
	return old
}

// unset makes the pages [lo, hi) no members, which all of them were, and returns
// the new summary. All runs must be looked at only when the one that is cut was
// a longest one.
func (l *leaf) unset(lo, hi int, old summary) summary {
	begin, end := l.runBefore(lo), l.next(hi, leafPages, false)
	l.fill(lo, hi, false)
	if begin == 0 {
		old.head = uint64(lo)
	}
	if end == leafPages {
		old.tail = uint64(leafPages - hi)
	}
	if uint64(end-begin) == old.best {
		old.best = uint64(l.best(int(old.best)))
	}
	return old
}

// summarize describes the leaf, and counts its members.
func (l *leaf) summarize() (sum summary, members uint64) {
	for _, x := range l {
		members += uint64(bits.OnesCount64(x))
	}
	return summary{
		head: uint64(l.next(0, leafPages, false)),
		best: uint64(l.best(leafPages)),
		tail: uint64(leafPages - l.runBefore(leafPages)),
	}, members
}

// runs counts the runs of members. follows tells whether the page before the first is
// one, and the result whether the last is.
func (l *leaf) runs(follows bool) (n uint64, last bool) {
	carry := uint64(0)
	if follows {
		carry = 1
	}
	for _, x := range l {
		n += uint64(bits.OnesCount64(x &^ (x<<1 | carry)))
		carry = x >> 63
	}
	return n, carry == 1
}

// best is the length of the longest run, which is known to be at most limit.
func (l *leaf) best(limit int) int {
	best, run := 0, 0
	for _, x := range l {
		if x == allOnes {
			run += 64
			continue
		}
		run += bits.TrailingZeros64(^x)
		best = longestRun(x, max(best, run))
		if best >= limit {
			return limit
		}
		run = bits.LeadingZeros64(^x)
	}
	return max(best, run)
}

// erode keeps those bits of x at which a run of at least n ones begins, with
// n from 1 to 64.
func erode(x uint64, n int) uint64 {
	for have := 1; have < n && x != 0; {
		step := min(have, n-have)
		x &= x >> step
		have += step
	}
	return x
}

// longestRun is the length of the longest run of ones in x, or atLeast if that
// is more. Most words cannot beat what is known; those cost a few shifts.
func longestRun(x uint64, atLeast int) int {
	if atLeast >= 64 {
		return atLeast
	}
	for x = erode(x, atLeast+1); x != 0; x &= x >> 1 {
		atLeast++
	}
	return atLeast
}
