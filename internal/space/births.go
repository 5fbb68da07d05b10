package space

import "holdfast/internal/page"

// births remembers which transaction allocated the pages in use, as far as that
// still decides something: a page of which nothing is known is taken to be
// older than every pinned state.
//
// An entry whose transaction is not younger than the oldest pinned state says
// nothing any more. Such entries go in one of two ways. When all are of that
// kind, which is so whenever no reader is left, they are dropped
// together. Otherwise every transaction looks at a few entries, twice as many
// as it added, going round; so there are never many more than are needed, and
// no transaction pays for another's.
//
// Invariant: entries do not overlap, and none is about an unused page.
type births struct {
	entries ordered[birth]
	newest  page.TxID // no entry is younger
	debt    int       // entries to look at
	hand    int       // the block to look at next
}

// A birth says that n pages, from the key on, were allocated by tx.
type birth struct {
	n  uint64
	tx page.TxID
}

// record notes that tx allocated the pages of e, about which nothing is known.
func (b *births) record(e page.Extent, tx page.TxID) {
	b.entries.insert(uint64(e.Start), birth{n: e.N, tx: tx})
	b.newest = max(b.newest, tx)
	b.debt += 2
}

// take returns how many of e's first pages have the same known origin, and that
// origin (0: nothing is known), and forgets it.
func (b *births) take(e page.Extent) (n uint64, tx page.TxID) {
	start, end := uint64(e.Start), uint64(e.End())
	if at, ok := b.entries.floor(start); ok {
		key, val := b.entries.key(at), b.entries.val(at)
		if keyEnd := key + val.n; keyEnd > start {
			tx, n = val.tx, min(keyEnd, end)-start
			if key < start {
				val.n = start - key
			} else {
				b.entries.remove(at)
			}
			if keyEnd > end {
				b.record(page.Extent{Start: page.ID(end), N: keyEnd - end}, tx)
			}
			return n, tx
		}
	}
	if at, ok := b.entries.after(start); ok {
		end = min(end, b.entries.key(at))
	}
	return end - start, 0
}

// forget takes all of e.
func (b *births) forget(e page.Extent) {
	for e.N > 0 {
		n, _ := b.take(e)
		e = page.Extent{Start: e.Start + page.ID(n), N: e.N - n}
	}
}

// prune drops everything when no entry is younger than the oldest pinned state.
func (b *births) prune(oldest page.TxID, pinned bool) {
	if b.entries.size > 0 && (!pinned || oldest >= b.newest) {
		b.entries.clear()
		b.newest, b.debt, b.hand = 0, 0, 0
	}
}

// sweep looks at as many entries as are owed, a block at a time.
func (b *births) sweep(oldest page.TxID) {
	for ; b.debt >= blockSize; b.debt -= blockSize {
		if b.hand >= len(b.entries.blocks) {
			b.hand = 0
		}
		blocks := len(b.entries.blocks)
		b.entries.filter(b.hand, func(_ uint64, val *birth) bool { return val.tx > oldest })
		if len(b.entries.blocks) == blocks {
			b.hand++
		}
	}
}
