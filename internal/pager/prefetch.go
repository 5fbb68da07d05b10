package pager

// Prefetch makes b, if it lies in the state's pages, and up to ahead bytes after it in the file ready for
// being read. With ahead, the system also begins to read as much again after them, so that
// the next call need not wait for the disk.
func (s *State) Prefetch(b []byte, ahead int) {
	from, ok := s.image.Offset(b)
	size := s.image.Size()
	if !ok || from >= size {
		return
	}
	n := uint64(len(b)) + uint64(max(ahead, 0))
	to := min(from+n, size)
	soon := to
	if ahead > 0 {
		soon = min(from+2*n, size)
	}
	s.gen.mapping.Prefetch(int64(from), int64(soon-from))
	s.image.Touch(from, to)
}
