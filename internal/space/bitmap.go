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
		mask := allOnes
		if lo > w*64 {
			mask &= allOnes << (lo - w*64)
		}
		if end := (w + 1) * 64; hi < end {
			mask &= allOnes >> (end - hi)
		}
		if member {
			l[w] |= mask
		} else {
			l[w] &^= mask
		}
	}
}

// next finds the first page at or behind from that is a member (or the first
// that is none). It returns leafPages when there is none.
func (l *leaf) next(from int, member bool) int {
	for w := from / 64; w < leafWords; w++ {
		x := l[w]
		if !member {
			x = ^x
		}
		if from > w*64 {
			x &= allOnes << (from - w*64)
		}
		if x != 0 {
			return w*64 + bits.TrailingZeros64(x)
		}
	}
	return leafPages
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

// summary computes the leaf's summary from its bits.
func (l *leaf) summary() summary {
	head, best, run := -1, 0, 0
	for _, x := range l {
		if x == allOnes {
			run += 64
			continue
		}
		run += bits.TrailingZeros64(^x)
		if head < 0 {
			head = run
		}
		best = longestRun(x, max(best, run))
		run = bits.LeadingZeros64(^x)
	}
	if head < 0 {
		head = run
	}
	return summary{head: uint64(head), best: uint64(max(best, run)), tail: uint64(run)}
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
