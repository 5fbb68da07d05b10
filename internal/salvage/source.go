package salvage

import (
	"bytes"
	"io"

	"holdfast/internal/page"
)

// Bits of what is known of a page: one byte for each page of the file.
const (
	markUsed   = 1 << iota // in a tree that was walked
	markTwice              // and in another place of one
	markFree               // recorded as free, or a record of free pages
	markLeaf               // an orphan: a leaf that can be read
	markBranch             // an orphan: a branch that can be read
	markRoot               // an orphan leaf names it as the root of a bucket
	markChild              // an orphan branch names it
	markListed             // an orphan of which it is not known where it belongs
)

// source is the damaged file. Nothing is mapped: a page that the disk cannot deliver
// is an error of that page and no fault of the process.
type source struct {
	r        io.ReaderAt
	size     int64 // bytes
	pageSize int64
	pages    page.ID // that are looked at: whole ones in the file
	marks    []byte
	read     uint64 // pages read, each time
	sealing  bool   // Holdfast wrote the file, which seals what it writes
	looked   uint64 // of read: as parts of runs of several, and
	saved    uint64 // likewise, to save what they hold
	saving   bool
	unread   bool // so many of these lie upon each other that not all were read

	window   []byte // of peek
	windowAt int64
}

// windowBytes is how much peek reads at a time.
const windowBytes = 1 << 20

// eagerBytes is the length of a run up to which its overflow is believed without a
// reason: a longer one is read as far as its elements reach.
const eagerBytes = 1 << 20

// Bounds of how often the pages of the file are read as parts of runs of several, on average: to look at
// them, and to save what they hold. In a database runs do not lie upon each other; in other bytes each page
// may say that it has all that follow, and to read them would take the square of their number.
const (
	looks = 32
	saves = 4
)

// mayRead tells whether n pages more may be read as a run.
func (s *source) mayRead(n uint64) bool {
	if n <= 1 {
		return true
	}
	counted, most := &s.looked, uint64(looks)
	if s.saving {
		counted, most = &s.saved, saves
	}
	*counted += n
	ok := *counted <= most*uint64(s.size/s.pageSize)
	s.unread = s.unread || !ok
	return ok
}

// loadToSave is load of a page whose elements are to be saved.
func (s *source) loadToSave(id page.ID) (page.Page, error) {
	s.saving = true
	defer func() { s.saving = false }()
	return s.load(id)
}

// errTooMuch is the damage of page id, whose run may not be read.
func errTooMuch(id page.ID) error {
	return page.Corruptf(id, "it was not read: so many runs of pages lie upon each other that not all can be followed")
}

func (s *source) at(id page.ID) int64 { return int64(id) * s.pageSize }

// mark sets bits of n pages from id on, as far as there are such.
func (s *source) mark(id page.ID, n uint64, bits byte) {
	if id >= s.pages {
		return
	}
	for i := uint64(0); i < n && id+page.ID(i) < s.pages; i++ {
		s.marks[uint64(id)+i] |= bits
	}
}

// unmark takes bits of n pages back.
func (s *source) unmark(id page.ID, n uint64, bits byte) {
	for i := uint64(0); i < n && id+page.ID(i) < s.pages; i++ {
		s.marks[uint64(id)+i] &^= bits
	}
}

func (s *source) is(id page.ID, bits byte) bool { return id < s.pages && s.marks[id]&bits != 0 }

// exists tells whether id is a page that can hold anything but a meta.
func (s *source) exists(id page.ID) bool { return id >= page.FirstDataPage && id < s.pages }

// bytesAt reads n bytes; damage of page id if that cannot be.
func (s *source) bytesAt(id page.ID, off int64, b []byte) error {
	if n, err := s.r.ReadAt(b, off); n < len(b) {
		return page.Corruptf(id, "cannot be read: %v", err)
	}
	return nil
}

// load reads the branch or leaf run at page id. With an error, p is the page all the
// same if nothing but its seal is wrong; otherwise it is not valid. The bytes are
// p's own.
func (s *source) load(id page.ID) (p page.Page, err error) {
	if !s.exists(id) {
		return p, page.NoPage(id, s.pages)
	}
	run := make([]byte, s.pageSize)
	if err := s.bytesAt(id, s.at(id), run); err != nil {
		return p, err
	}
	s.read++
	h := page.DecodeHeader(run)
	whole := true
	if h.Overflow > 0 && h.ID == id && (h.Flags == page.FlagLeaf || h.Flags == page.FlagBranch) {
		if run, whole, err = s.long(id, run, h); err != nil {
			return p, err
		}
	}
	if p, err = page.Parse(run, id); err != nil {
		return page.Page{}, err
	}
	if whole {
		return p, s.checkSeal(p, id)
	}
	return p, nil
}

// checkSeal is stricter than an opening, which takes a page whose seal is gone for one
// that bbolt wrote.
func (s *source) checkSeal(p page.Page, id page.ID) error {
	run := p.Bytes()
	switch page.CheckSeal(run, id) {
	case page.WrongSeal:
		return page.Corruptf(id, "its checksum does not match its content")
	case page.Sealed:
		s.sealing = true
		return nil
	}
	end := p.End()
	if end > uint64(len(run)-page.SealSize) {
		return nil // which has no room for one
	}
	if !isZero(run[len(run)-page.SealSize:]) {
		return page.Corruptf(id, "what stands in the place of its checksum is not one")
	}
	// What a disk loses at a time, or a program that writes zeros.
	for _, unit := range []int{512, 4096, int(s.pageSize)} {
		if from := len(run) - unit; s.sealing && from > 0 && end > uint64(from) && isZero(run[from:]) {
			return page.Corruptf(id, "it ends with zeros, and has no checksum: they stand in the place of both, or are of a value that bbolt wrote")
		}
	}
	return nil
}

func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// long reads a run of more than one page, of which first is the first. A run that is
// long without a reason is read as far as its elements reach, and not whole.
func (s *source) long(id page.ID, first []byte, h page.Header) (run []byte, whole bool, err error) {
	n := uint64(h.Overflow) + 1
	if n > uint64(s.pages-id) {
		return nil, false, page.TooLong(id, n, s.pages)
	}
	size, need := int64(n)*s.pageSize, int64(n)*s.pageSize
	if size > eagerBytes {
		array := page.HeaderSize + int64(h.Count)*page.LeafElementSize
		if array > size {
			return nil, false, page.Corruptf(id, "%d elements do not fit into %d pages", h.Count, n)
		}
		head := first
		if array > s.pageSize {
			head = make([]byte, array)
			if err := s.bytesAt(id, s.at(id), head); err != nil {
				return nil, false, err
			}
		}
		need = s.reach(head, h, size)
	}
	if !s.mayRead(uint64(need / s.pageSize)) {
		return nil, false, errTooMuch(id)
	}
	run = make([]byte, need)
	s.read += uint64(need/s.pageSize) - 1
	return run, need == size, s.bytesAt(id, s.at(id), run)
}

// slackPages is by how much more than its elements need a run may be long.
const slackPages = 2

// reach is how many bytes of a run of size bytes its elements reach, in whole pages: all
// if that is about its length. head has all elements.
func (s *source) reach(head []byte, h page.Header, size int64) int64 {
	end := uint64(page.HeaderSize + int(h.Count)*page.LeafElementSize)
	for i := range int(h.Count) {
		if _, to := elementBounds(head, h.Flags == page.FlagLeaf, i); to <= uint64(size) {
			end = max(end, to)
		}
	}
	need := (int64(end) + s.pageSize - 1) / s.pageSize * s.pageSize
	if size-need <= slackPages*s.pageSize {
		return size
	}
	return need
}

// peek is the header of page id, read along with those after it: for a scan.
func (s *source) peek(id page.ID) (page.Header, bool) {
	at := s.at(id)
	if s.window == nil || at < s.windowAt || at+page.HeaderSize > s.windowAt+int64(len(s.window)) {
		if s.window == nil {
			s.window = make([]byte, max(windowBytes, s.pageSize))
		}
		s.window = s.window[:cap(s.window)]
		n, err := s.r.ReadAt(s.window, at)
		if n < page.HeaderSize && err != nil || n < page.HeaderSize {
			s.window = s.window[:0]
			return page.Header{}, false
		}
		s.window, s.windowAt = s.window[:n], at
	}
	return page.DecodeHeader(s.window[at-s.windowAt:]), true
}

// bounds are those of the keys of a page: from lo to before hi, each nil if there is
// none.
type bounds struct{ lo, hi []byte }

func (b bounds) has(key []byte) bool {
	return (b.lo == nil || bytes.Compare(key, b.lo) >= 0) && (b.hi == nil || bytes.Compare(key, b.hi) < 0)
}

func (b bounds) clone() bounds { return bounds{bytes.Clone(b.lo), bytes.Clone(b.hi)} }
