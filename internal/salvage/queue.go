package salvage

import (
	"math/bits"

	"holdfast/internal/page"
)

// maxKept bounds the keys of the file that are in memory besides those of the pages that
// are being read, in bytes. What goes with keys beyond is treated as not known.
const maxKept = 16 << 20

// keep counts keys that are to be kept; false if there are too many of them.
func (s *salvage) keep(keys ...[]byte) bool {
	n := keyBytes(keys...)
	if s.kept+n > maxKept {
		return false
	}
	s.kept += n
	return true
}

// release is for keys that are not kept any more.
func (s *salvage) release(keys ...[]byte) { s.kept -= keyBytes(keys...) }

func keyBytes(keys ...[]byte) (n int64) {
	for _, key := range keys {
		n += int64(len(key))
	}
	return n
}

// queue is pages that wait for something, the lowest first. Each waits once: one that has
// was taken is not taken again. It takes two bits for each page of the file, and for
// each 64 pages one more, so that the next is found without a look at all.
type queue struct {
	n       int      // pages that wait
	met     []uint64 // a bit for each page: it waits, or was taken
	waiting []uint64 // a bit for each page
	words   []uint64 // a bit for each word of waiting that is not 0
}

// add has a page of a file of so many pages wait.
func (q *queue) add(id, pages page.ID) {
	if id >= pages {
		return
	}
	if need := int(pages/64) + 1; len(q.met) < need {
		q.met = append(q.met, make([]uint64, need-len(q.met))...)
		q.waiting = append(q.waiting, make([]uint64, need-len(q.waiting))...)
		q.words = append(q.words, make([]uint64, need/64+1-len(q.words))...)
	}
	word, bit := id/64, uint64(1)<<(id%64)
	if q.met[word]&bit != 0 {
		return
	}
	q.met[word] |= bit
	q.waiting[word] |= bit
	q.words[word/64] |= 1 << (word % 64)
	q.n++
}

// next takes the lowest page that waits; false if none does.
func (q *queue) next() (page.ID, bool) {
	if q.n == 0 {
		return 0, false
	}
	for i, set := range q.words {
		if set == 0 {
			continue
		}
		word := i*64 + bits.TrailingZeros64(set)
		low := bits.TrailingZeros64(q.waiting[word])
		if q.waiting[word] &^= 1 << low; q.waiting[word] == 0 {
			q.words[i] &^= 1 << (word % 64)
		}
		q.n--
		return page.ID(word*64 + low), true
	}
	return 0, false
}
