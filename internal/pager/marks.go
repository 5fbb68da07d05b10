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

// Remembers tells whether there are marks.
func (s *State) Remembers() bool { return s.gen.marks != nil }
