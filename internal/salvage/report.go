package salvage

import (
	"fmt"

	"holdfast/internal/page"
)

// maxNoted bounds each list of a report. What is beyond is counted.
const maxNoted = 10_000

// Report says what was found and what was lost.
type Report struct {
	PageSize  int64
	Pages     page.ID // that were looked at
	PagesRead uint64  // each time that one was
	Slot      int     // of the meta that was used; -1 for none
	Trailing  bool    // it was the part of it that Holdfast wrote
	Older     bool    // a newer state is named, whose root cannot be read
	Tx        uint64  // number of the state
	Root      page.ID // of the root bucket; 0: not known
	Free      string  // what told the free pages: "" for nothing

	Buckets, Keys uint64 // saved in their places
	Found         uint64 // keys and buckets of those, from pages that no sound tree names
	FoundIn       string // the bucket at the top level that lost+found is; "" if there is none
	Unplaced      uint64 // keys and buckets in it
	Conflicts     uint64 // keys of which another value was saved
	LostElements  uint64
	Orphans       uint64 // pages with elements that were not saved: see Options.All
	Doubled       uint64 // pages that are in two places

	Damage   []Damage
	Ranges   []Range
	Elements []Element
	Places   []Found
	Doubts   []string // why something may be lost that nothing else tells of
	Notes    []string
	More     bool // some list is longer than is told
}

// Damage is a page that cannot be used.
type Damage struct {
	Page   page.ID
	Reason string
}

// Range is keys that a page held, or pages below it: from From to before To, nil if
// there is no such bound.
type Range struct {
	Page     page.ID
	Path     [][]byte
	From, To []byte
	Found    uint64 // keys and buckets of it that were found elsewhere
}

// Element is one that could not be saved of a page that could be read. Key is nil if it
// cannot be told either.
type Element struct {
	Page   page.ID
	Path   [][]byte
	Key    []byte
	Reason string
}

// Found is what a bucket of lost+found holds.
type Found struct {
	Name  string
	Page  page.ID
	Count uint64 // keys and buckets
	Why   string
}

// Sound tells whether nothing was lost.
func (r *Report) Sound() bool {
	return len(r.Damage)+len(r.Ranges)+len(r.Doubts) == 0 && r.LostElements == 0 && r.Slot >= 0 && !r.Older && r.Doubled == 0 && r.Conflicts == 0
}

func notef(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// add appends to a list of the report unless it is full.
func add[T any](r *Report, list *[]T, v T) {
	if len(*list) >= maxNoted {
		r.More = true
		return
	}
	*list = append(*list, v)
}
