package pager

import "holdfast/internal/page"

// Mark is the place where a reader that holds the state remembers what it found out about value, and can tell whether it
// was found out before, in any transaction. It remembers nothing of a value that does not lie in the file, and nothing unless
// Remembers: the writes of another process are not known here.
func (s *State) Mark(value, found []byte) page.Mark {
	at, ok := s.image.Offset(value)
	if !ok || s.gen.marks == nil {
		return page.Mark{}
	}
	return s.gen.marks.At(at, len(value), page.ID(at/uint64(s.image.PageSize())), found)
}

// maxAheadBytes bounds what is read in vain where a page is no leaf.
const maxAheadBytes = 256 << 10

// frame is what stands about one value on the pages of its leaf, in bytes: header, element, key of 8 bytes, and seal.
const frame = page.HeaderSize + page.LeafElementSize + 8 + page.SealSize

// Ahead has the system begin to read a leaf on page id with a value of length bytes, unless it was told so since the file was
// opened: else each of its pages would be read by itself, or the first one, which tells how many there are, before the others.
// There must be marks.
func (s *State) Ahead(id page.ID, length int) {
	ps := uint64(s.image.PageSize())
	if limit := page.ID(s.image.Size() / ps); id < limit && s.gen.marks.First(id) {
		n := min(uint64(length)+frame, maxAheadBytes, uint64(limit-id)*ps)
		s.gen.mapping.Prefetch(int64(uint64(id)*ps), int64(n))
	}
}

// Remembers tells whether there are marks.
func (s *State) Remembers() bool { return s.gen.marks != nil }
