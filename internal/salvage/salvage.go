package salvage

import (
	"context"
	"errors"
	"fmt"
	"io"

	"holdfast/internal/page"
)

// Sink takes what is saved.
type Sink interface {
	// Begin comes before all else, with the page size of the file.
	Begin(pageSize int) error
	// Bucket makes the bucket p with its sequence, unless it is there; false if
	// there is a key of that name.
	Bucket(p *Place) (bool, error)
	// Put puts a key into a bucket, unless there is one of that name, which stays.
	// Key and value stay as they are.
	Put(p *Place, key, value []byte) (Outcome, error)
	// Fresh is name, or one like it that is not a bucket at the top level.
	Fresh(name string) (string, error)
}

// Outcome is what a Put did.
type Outcome int

// Outcomes.
const (
	Saved Outcome = iota
	Same          // it was there, with the same value
	Other         // another value was there, or a bucket
)

// Options say how to salvage.
type Options struct {
	// All saves also leaf pages that look free: what they hold was deleted, or
	// replaced, or is a copy.
	All bool
	// Root is the page that is taken for the root of the database; 0: the one that
	// the metas name, or that is found.
	Root page.ID
	// PageSize is that of the file, in bytes; 0: the one that the metas or the pages tell.
	PageSize int64
	// Progress is called with the number of pages that were read; may be nil.
	Progress func(pages uint64)
}

// ErrRoot is wrapped by the error of a page given as the root that can be none.
var ErrRoot = errors.New("no root of a database")

// salvage is one Run.
type salvage struct {
	source
	ctx     context.Context
	options Options
	sink    Sink
	r       Report
	root    *Place

	freeKnown bool
	holes     []hole
	suspects  queue // leaves with nothing but a wrong seal
	strangers []stranger
	crowd     queue // leaves that would be strangers, were there not too many
	kept      int64 // bytes of keys, see keep
	filling   *hole // whose keys are being looked for
	scanned   bool
	foundAt   *Place // lost+found
	places    []*Found
	unplaced  uint64 // pages with markListed that were not saved yet
	grouped   []lost // of these, those that belong with others
	leftovers bool   // what is walked may be stale: pages in use are none of its own
	stale     bool   // and its damage is none of the database's
}

// Run reads the file r of size bytes and gives what can be saved to sink. The error is
// the sink's, that ctx has ended, or that there is no database in the file (ErrNone).
func Run(ctx context.Context, r io.ReaderAt, size int64, sink Sink, options Options) (*Report, error) {
	s, err := begin(ctx, r, size, options)
	if err != nil {
		return nil, err
	}
	s.sink, s.root = sink, &Place{tree: &tree{leafDepth: -1}}
	if err := sink.Begin(int(s.pageSize)); err != nil {
		return nil, err
	}
	if err := s.run(); err != nil {
		return nil, err
	}
	s.conclude()
	return &s.r, nil
}

// conclude notes what a report ends with.
func (s *salvage) conclude() {
	s.r.Pages, s.r.PagesRead = s.pages, s.read
	if s.unread {
		s.r.Doubts = appendOnce(s.r.Doubts, "so many runs of pages lie upon each other that not all were read")
	}
}

// begin looks how large the pages of the file are.
func begin(ctx context.Context, r io.ReaderAt, size int64, options Options) (*salvage, error) {
	s := &salvage{ctx: ctx, options: options, source: source{r: r, size: size}}
	if s.pageSize = options.PageSize; s.pageSize == 0 {
		var err error
		if s.pageSize, err = findPageSize(ctx, r, size); err != nil {
			return nil, err
		}
	}
	if s.pageSize < page.MinPageSize || s.pageSize > page.MaxPageSize {
		return nil, fmt.Errorf("%w: %d", ErrPageSize, s.pageSize)
	}
	s.r.PageSize, s.r.Slot = s.pageSize, -1
	return s, nil
}

func (s *salvage) run() error {
	if err := s.start(); err != nil {
		return err
	}
	for {
		if err := s.saveSuspects(); err != nil {
			return err
		}
		if s.open() {
			if err := s.scan(false); err != nil {
				return err
			}
			if err := s.fill(); err != nil {
				return err
			}
			continue
		}
		if s.suspects.n == 0 && s.unplaced == 0 && len(s.strangers) == 0 && s.crowd.n == 0 {
			if more, err := s.unexplained(); err != nil {
				return err
			} else if !more {
				break
			}
		}
		if err := s.saveUnplaced(); err != nil {
			return err
		}
		if err := s.saveStrangers(); err != nil {
			return err
		}
	}
	if err := s.rest(); err != nil {
		return err
	}
	for _, f := range s.places {
		add(&s.r, &s.r.Places, *f)
	}
	return nil
}

// rest saves, or counts, the orphans that are left.
func (s *salvage) rest() error {
	if s.options.All {
		return s.saveLeftovers()
	}
	for id := range s.marks {
		if s.marks[id]&(markLeaf|markBranch) != 0 && s.marks[id]&markUsed == 0 {
			s.r.Orphans++
		}
	}
	return nil
}

// unexplained looks for orphans that nothing that was lost explains: what named them may
// be damaged so that it does not show.
func (s *salvage) unexplained() (more bool, err error) {
	if !s.freeKnown && s.r.Doubled == 0 {
		return false, nil
	}
	if err := s.scan(false); err != nil {
		return false, err
	}
	for id := page.FirstDataPage; id < s.pages; id++ {
		if s.isOrphan(id) && !s.is(id, markListed) {
			s.unknown(orphan{id: id, height: -1}, 0)
		}
	}
	if s.unplaced > 0 {
		s.r.Doubts = appendOnce(s.r.Doubts, "there are pages in use that nothing names: see lost+found")
	}
	return s.unplaced > 0 || s.suspects.n > 0, nil
}

// open tells whether there are holes that nothing was looked for yet.
func (s *salvage) open() bool {
	for i := range s.holes {
		if !s.holes[i].closed {
			return true
		}
	}
	return false
}

func (s *salvage) progress() {
	if s.options.Progress != nil {
		s.options.Progress(s.read)
	}
}

// start finds the state to begin with and walks it.
func (s *salvage) start() error {
	s.limit(0)
	states, doubts, mended := s.states()
	s.r.Doubts = append(s.r.Doubts, doubts...)
	s.r.Notes = append(s.r.Notes, mended...)
	if s.options.Root != 0 {
		return s.forced(states)
	}
	var sure []state
	for _, st := range states {
		s.limit(st.highWater)
		if _, err := s.load(st.root); err != nil {
			s.r.Notes = append(s.r.Notes, notef("the root of transaction %d cannot be used: %v", st.number, err))
		} else if whole, err := s.believable(st); err != nil {
			return err
		} else if whole {
			s.r.Older = len(sure) > 0
			s.use(st)
			return s.walk(s.root, st.root, 0, bounds{})
		}
		if !st.unsure {
			sure = append(sure, st)
		}
	}
	if len(sure) > 0 {
		s.limit(sure[0].highWater)
		s.use(sure[0])
		if s.freeKnown { // what is in use and in no tree is what the root named
			return s.walk(s.root, sure[0].root, 0, bounds{})
		}
		s.r.Slot, s.r.Tx, s.r.Root = -1, 0, 0
	}
	s.limit(0)
	return s.withoutRoot()
}

// believable tells whether a state that is not sure is whole.
func (s *salvage) believable(st state) (bool, error) {
	if !st.unsure {
		return true, nil
	}
	whole, err := s.stateIsWhole(st)
	if err == nil && whole {
		s.r.Notes = append(s.r.Notes, notef("meta page %d still names page %d as the root, and all that this reaches is whole", st.slot, st.root))
	}
	return whole, err
}

// forced walks the tree of the page that was asked for.
func (s *salvage) forced(states []state) error {
	root := s.options.Root
	for _, st := range states {
		if st.root != root {
			continue
		}
		s.limit(st.highWater)
		if _, err := s.load(root); err == nil {
			s.use(st)
			return s.walk(s.root, root, 0, bounds{})
		}
	}
	s.limit(0)
	if _, err := s.load(root); err != nil {
		return fmt.Errorf("%w: %w", ErrRoot, err)
	}
	s.r.Root = root
	s.r.Doubts = append(s.r.Doubts, notef("page %d was given as the root of the database", root))
	return s.walk(s.root, root, 0, bounds{})
}

// limit has pages below highWater looked at, as far as the file has them; with 0 all.
func (s *salvage) limit(highWater page.ID) {
	s.pages = page.ID(s.size / s.pageSize)
	if highWater > 0 {
		if highWater > s.pages {
			s.r.Notes = appendOnce(s.r.Notes, notef("the file is cut short: it has %d of %d pages", s.pages, highWater))
		}
		s.pages = min(s.pages, highWater)
	}
	if len(s.marks) != int(s.pages) {
		s.marks = make([]byte, s.pages)
	}
}

func appendOnce(list []string, s string) []string {
	for _, have := range list {
		if have == s {
			return list
		}
	}
	return append(list, s)
}

// use takes a state for the one to save.
func (s *salvage) use(st state) {
	s.r.Slot, s.r.Trailing, s.r.Tx, s.r.Root = st.slot, st.trailing, st.number, st.root
	if st.free == nil {
		return
	}
	if err := st.free(&s.source); err != nil {
		s.forgetFree()
		s.r.Notes = append(s.r.Notes, notef("which pages are free is not known: %v", err))
		return
	}
	s.freeKnown, s.r.Free = true, st.how
}

// withoutRoot looks for the root of the database among the pages.
func (s *salvage) withoutRoot() error {
	all, err := s.candidates()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		s.r.Doubts = append(s.r.Doubts, "no page looks like the root of the database: the names of its buckets are not known")
		s.addHole(hole{at: s.root})
		return nil
	}
	best := all[0]
	s.r.Doubts = append(s.r.Doubts, notef("page %d is taken for the root of the database%s; %d more look like it: what is saved may be of an older state", best.id, best.reason(), len(all)-1))
	s.r.Root = best.id
	if best.exact != nil {
		s.use(state{slot: -1, root: best.id, how: notef("the freelist in page %d", best.exact.id), free: func(s *source) error { return s.markFreelist(best.exact.id) }})
	}
	return s.walk(s.root, best.id, 0, bounds{})
}

// search looks at all pages, and gives those that can be the root, the best first. The caller ends the search.
func (s *salvage) search() (*search, []*candidate, error) {
	if err := s.scan(false); err != nil {
		return nil, nil, err
	}
	search := newSearch(s)
	err := search.gather()
	var all []*candidate
	if err == nil {
		all, err = search.rank()
	}
	if err != nil {
		search.end()
		return nil, nil, err
	}
	return search, all, nil
}

// candidates are the pages that can be the root, the best first.
func (s *salvage) candidates() ([]*candidate, error) {
	search, all, err := s.search()
	if err != nil {
		return nil, err
	}
	search.end()
	clear(s.marks) // they are of a scan that knew nothing of free pages
	s.scanned = false
	return all, nil
}
