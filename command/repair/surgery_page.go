package repair

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/internal/page"
)

const copyPageHelp = `Copy a page, with its overflow pages, over another one: for example one that an
earlier transaction has left over the one that took its place and is damaged now.

The two can be pages of data, or the two meta pages. What lies after the copied page's
length stays as it is. The list of free pages is given up: the copy may name pages
that were free.`

const clearPageHelp = `Remove all elements from a branch or leaf page. A branch becomes an empty leaf, as
a branch without elements is not a tree. An empty leaf below a branch can be read
past, by bbolt too, but is a fault for check: compact then makes a file without it.

What the elements had below them, the pages of buckets and branches, is lost and becomes
free: the list of free pages is given up, and the next opening for writing
makes it anew.`

const clearElementsHelp = `Remove the elements from --from-index, counted from 0, to before --to-index from a
branch or leaf page; --to-index -1 is all to the end. So a damaged element can be
cut out and the others stay. What is left is packed anew. Where the first one is
removed from a page below a branch, the branch still has its key; that can be
read, by bbolt too, but is a fault for check: compact then makes a file that is right.

What the elements had below them is lost and becomes free: the list of free pages
is given up, and the next opening for writing makes it anew.`

func newCopyPage(a *cli.App) *cobra.Command {
	var from, to uint64
	cmd := newOperation(a, operation{
		use: "copy-page", short: "Copy a page over another one", long: copyPageHelp,
		required: []string{flagFromPage, flagToPage},
		look: func(c *cli.Call, p *patient) error {
			if from == to {
				return cli.Usagef("--from-page and --to-page have the same value: %d", from)
			}
			return needState(c, p)
		},
		do: func(s *surgeon) error { return s.copyPage(page.ID(from), page.ID(to)) },
		stock: func(s *surgeon) {
			fmt.Fprintf(s.Out, "The page %d was successfully copied to page %d\n", from, to)
		},
	})
	cmd.Flags().Uint64Var(&from, flagFromPage, 0, "page to copy (required)")
	cmd.Flags().Uint64Var(&to, flagToPage, 0, "page to write (required)")
	return cmd
}

func newClearPage(a *cli.App) *cobra.Command {
	var id uint64
	cmd := newOperation(a, operation{
		use: "clear-page", short: "Remove all elements from a branch or leaf page", long: clearPageHelp,
		required: []string{flagPage},
		look:     func(c *cli.Call, p *patient) error { return dataPage(c, p, flagPage, page.ID(id), p.known()) },
		do:       func(s *surgeon) error { return s.clearPage(page.ID(id), 0, -1) },
		stock:    func(s *surgeon) { fmt.Fprintf(s.Out, "The page (%d) was cleared\n", id) },
	})
	cmd.Flags().Uint64Var(&id, flagPage, 0, "the page (required)")
	return cmd
}

func newClearPageElements(a *cli.App) *cobra.Command {
	var id uint64
	var from, to int
	cmd := newOperation(a, operation{
		use: "clear-page-elements", short: "Remove some elements from a branch or leaf page", long: clearElementsHelp,
		required: []string{flagPage, flagFromIndex, flagToIndex},
		look:     func(c *cli.Call, p *patient) error { return dataPage(c, p, flagPage, page.ID(id), p.known()) },
		do:       func(s *surgeon) error { return s.clearPage(page.ID(id), from, to) },
		stock: func(s *surgeon) {
			fmt.Fprintf(s.Out, "All elements in [%d, %d) in page %d were cleared\n", from, to, id)
		},
	})
	cmd.Flags().Uint64Var(&id, flagPage, 0, "the page (required)")
	cmd.Flags().IntVar(&from, flagFromIndex, 0, "first element to remove, counted from 0 (required)")
	cmd.Flags().IntVar(&to, flagToIndex, 0, "first element after them that stays; -1: none (required)")
	return cmd
}

// dataPage is an error of the command line unless id is a page below limit that can be
// operated on.
func dataPage(c *cli.Call, p *patient, flag string, id page.ID, limit uint64) error {
	if err := needState(c, p); err != nil {
		return err
	}
	switch {
	case limit <= uint64(page.FirstDataPage):
		return &cli.FileError{
			File: c.Args[0], What: fmt.Sprintf("meta page %d says that there are no pages besides the two meta pages", p.best),
			Next: fmt.Sprintf("%s surgery meta update changes what it says", c.Name()), Err: page.ErrInvalid,
		}
	case id < page.FirstDataPage || uint64(id) >= limit:
		return cli.Usagef("--%s: %s has pages %d to %d, not %d", flag, c.Args[0], page.FirstDataPage, limit-1, id)
	}
	return nil
}

// copyPage copies a run of pages.
func (s *surgeon) copyPage(from, to page.ID) error {
	if from < page.FirstDataPage && to < page.FirstDataPage {
		return s.copyMeta(int(from), int(to))
	}
	for _, f := range []struct {
		flag string
		id   page.ID
	}{{flagFromPage, from}, {flagToPage, to}} {
		if err := dataPage(s.Call, s.patient, f.flag, f.id, s.limit()); err != nil {
			return err
		}
	}
	run, err := s.readRun(from)
	if err != nil {
		return err
	}
	n := uint64(len(run)) / uint64(s.pageSize)
	switch {
	case n > s.limit()-uint64(to):
		return cli.Usagef("--to-page: page %d takes %s, and the last page is %d", from, cli.Plural(n, "page"), s.limit()-1)
	case to < from+page.ID(n) && from < to+page.ID(n):
		return cli.Usagef("--to-page: page %d takes %s, so that the two would lie upon each other", from, cli.Plural(n, "page"))
	}
	if s.r.did("page %d was copied to page %d", from, to); n > 1 {
		s.r.did("with its overflow pages it takes %s", cli.Plural(n, "page"))
	}
	s.noteOverflow(to, n)
	h := page.DecodeHeader(run)
	state := page.CheckSeal(run, from)
	h.ID = to
	page.EncodeHeader(run, h)
	if state != page.Unsealed {
		s.reseal(run, from, to, state)
	}
	if err := s.writeRun(to, run); err != nil {
		return err
	}
	return s.loseFree()
}

// noteOverflow warns if the page to be written is of another length than what is
// written to it.
func (s *surgeon) noteOverflow(to page.ID, n uint64) {
	header := make([]byte, page.HeaderSize)
	if _, err := s.file.ReadAt(header, int64(to)*s.pageSize); err != nil {
		return // it is written anyway
	}
	h := page.DecodeHeader(header)
	if was := uint64(h.Overflow) + 1; h.ID == to && was < n {
		s.r.warn("page %d had %s, so that %s after it may have been in use", to, cli.Plural(was, "page"), cli.Plural(n-was, "page"))
	}
}

// reseal gives a run that lay at page from, and had a seal, a right one for page to.
func (s *surgeon) reseal(run []byte, from, to page.ID, was page.SealState) {
	if was == page.WrongSeal {
		s.r.warn("the checksum of page %d was wrong: what is left of its content may be damaged, and that does not show any more", from)
	}
	if seal, ok := page.SealOf(run, to); ok {
		copy(run[len(run)-page.SealSize:], seal[:])
	}
}

// loseFree gives up what the copy says of its free pages, and says so.
func (s *surgeon) loseFree() error {
	s.r.did("the list of free pages was given up: the next opening of the copy for writing scans it")
	return s.forgetFree()
}

// noSense is the error of a page of which not even the head makes sense: it can be cut off only
// where it is named.
func (s *surgeon) noSense(err error) error {
	var e *cli.FileError
	if !cli.IsDamage(err) || !errors.As(s.Explain(s.r.File, err), &e) {
		return err
	}
	next := e.Next + ", which says what element of what page names it; surgery clear-page-elements takes that out"
	return &cli.FileError{File: e.File, What: e.What, Next: next, Err: err}
}

// clearPage removes the elements [from, to) of a page; to can be -1.
func (s *surgeon) clearPage(id page.ID, from, to int) error {
	if err := dataPage(s.Call, s.patient, flagPage, id, s.limit()); err != nil {
		return err
	}
	run, err := s.readRun(id)
	if cli.IsDamage(err) && from == 0 && to == -1 { // where nothing is to stay, its length does not matter
		run, err = s.readFirst(id)
	}
	if err != nil {
		return s.noSense(err)
	}
	h := page.DecodeHeader(run)
	if h.Flags != page.FlagLeaf && h.Flags != page.FlagBranch {
		return cli.Usagef("--%s: page %d of %s is a %s page; only a leaf or a branch has elements to remove", flagPage, id, s.r.File, page.TypeName(h.Flags))
	}
	if h.Count == 0 {
		s.r.did("page %d has no elements", id)
		return nil
	}
	if to == -1 {
		to = int(h.Count)
	}
	if err := s.checkRange(id, int(h.Count), from, to); err != nil {
		return err
	}
	state := page.CheckSeal(run, id)
	left, err := without(run, id, from, to, int(s.pageSize))
	if err != nil {
		return err
	}
	if state != page.Unsealed {
		if len(left.kept) == 0 {
			state = page.Sealed // nothing is left that could be damaged
		}
		s.reseal(left.run, id, id, state)
	}
	if err := s.writeRun(id, left.run); err != nil {
		return err
	}
	s.r.did("page %d: %s removed, %s left", id, cli.Plural(to-from, "element"), cli.Count(len(left.kept)))
	if left.became != "" {
		s.r.did("page %d: %s", id, left.became)
	}
	if from == 0 && id != s.slots.Meta[s.best].Root {
		first := "has no elements any more"
		if len(left.kept) > 0 {
			first = "begins with another key"
		}
		s.r.warn("page %d %s: if a branch names the page, check finds that; it can be read, by bbolt too, and %s compact makes a file that is right", id, first, s.Name())
	}
	return s.loseFree()
}

// checkRange is an error unless [from, to) are some of the n elements of page id.
func (s *surgeon) checkRange(id page.ID, n, from, to int) error {
	of := fmt.Sprintf("page %d of %s", id, s.r.File)
	switch {
	case from < 0 || from >= n:
		return cli.Usagef("--%s: %s has elements 0 to %d, not %d", flagFromIndex, of, n-1, from)
	case to < 0 || to > n:
		return cli.Usagef("--%s: %s has %s, so that %d is not the end of a part of them", flagToIndex, of, cli.Plural(n, "element"), to)
	case from >= to:
		return cli.Usagef("--%s: from %d to before %d there is no element", flagToIndex, from, to)
	}
	return nil
}

// remaining is a page run from which elements were taken.
type remaining struct {
	run    []byte
	kept   []int // the elements that are left, as they were counted
	became string
}

// without makes a page of what is left of the leaf or branch page run without the
// elements [from, to), which may be damaged; the others must be sound.
func without(run []byte, id page.ID, from, to, pageSize int) (remaining, error) {
	var r remaining
	h := page.DecodeHeader(run)
	if from == 0 && to == int(h.Count) {
		h.Count, h.Overflow = 0, 0 // of what is removed nothing has to make sense
		run = run[:pageSize]
		page.EncodeHeader(run, h)
	}
	p, err := page.Parse(run, id)
	if err != nil {
		return r, err
	}
	size := uint64(page.HeaderSize)
	for i := range p.Count() {
		if i >= from && i < to {
			continue
		}
		start, end, err := p.Span(i)
		if err != nil {
			return r, fmt.Errorf("%w: it has to be removed too", err)
		}
		r.kept = append(r.kept, i)
		size += page.LeafElementSize + uint64(end-start)
	}
	if size > uint64(len(run)) {
		return r, page.Corruptf(id, "its elements lie upon each other, and together they are longer than the page")
	}
	pages := (int(size) + pageSize - 1) / pageSize
	r.run = make([]byte, pages*pageSize)
	e, branch := page.NewLeaf(r.run, id, len(r.kept), uint32(pages-1)), !p.IsLeaf() && len(r.kept) > 0
	if branch {
		e = page.NewBranch(r.run, id, len(r.kept), uint32(pages-1))
	}
	for _, i := range r.kept {
		if err := add(&e, p, i); err != nil {
			return r, err
		}
	}
	e.Finish(false)
	if !p.IsLeaf() && !branch {
		r.became = "it was a branch and is an empty leaf now"
	}
	return r, nil
}

// add adds element i of p to a page of its kind.
func add(e *page.Encoder, p page.Page, i int) error {
	if p.IsLeaf() {
		element, err := p.Leaf(i)
		if err == nil {
			e.Leaf(element.Flags, element.Key, element.Value)
		}
		return err
	}
	key, child, err := p.Branch(i)
	if err == nil {
		e.Branch(key, child)
	}
	return err
}
