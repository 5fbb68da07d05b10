package holdfast

import (
	"cmp"
	"errors"
	"iter"

	"holdfast/internal/check"
	"holdfast/internal/page"
	"holdfast/internal/pager"
)

// ErrNewerCommit is returned by FreeExtents and ForEachPage when another has committed
// since the transaction began, or is about to: which pages were free in the
// transaction's own state is not known any more. Try again in a new transaction.
var ErrNewerCommit = errors.New("another transaction has committed since this one began")

// PageKind is what pages are used for.
type PageKind = check.PageKind

// Kinds of pages.
const (
	PageMeta     = check.KindMeta
	PageBranch   = check.KindBranch
	PageLeaf     = check.KindLeaf
	PageFreelist = check.KindFreelist // the free pages, as bbolt stores them
	PageRecord   = check.KindRecord   // the free pages, as Holdfast records them
	PageFree     = check.KindFree
	PageDamaged  = check.KindDamaged // in use, and cannot be read
	PageUnknown  = check.KindUnknown // in use or free: damage elsewhere hides which
)

// PageRun is a run of consecutive pages that belong together: a page with its overflow
// pages, or pages that are free, as many as there are side by side.
type PageRun = check.PageRun

// FreeExtents yields the free pages of the database in ascending order: the first page
// of each run of consecutive ones, and how many it has. Pages that are free as soon as
// no reader sees them are among them. Of a database that is open for writing, and of a
// file that records its free pages or has a freelist page, it takes no look at other
// pages; else it looks at all that are in use, once.
//
// The error may be a *CorruptError, of a freelist page or of the pages that had to be
// looked at; ErrNewerCommit; or ErrTxClosed. What is yielded is a copy, and may be used
// while others write.
func (tx *Tx) FreeExtents() (iter.Seq2[Pgid, uint64], error) {
	space, err := tx.freeSpace()
	if err != nil {
		return nil, err
	}
	return func(yield func(Pgid, uint64) bool) {
		for _, e := range space.Free {
			if !yield(e.Start, e.N) {
				return
			}
		}
	}, nil
}

// ForEachPage calls fn for all pages of the database in ascending order, each in one
// run, until fn returns an error, which is returned. It reads all pages that are not
// free, but not the values of large ones, and verifies their seals. Pages that cannot
// be read are of PageDamaged: they are not an error here. It follows no tree: Check
// tells whether the pages fit each other.
//
// If damage keeps it from finding the free pages, it goes through all buckets instead,
// as far as they can be read, and returns that damage, a *CorruptError, after fn was
// called for all pages. Other errors are ErrNewerCommit and ErrTxClosed, before the
// first call. Readers and writers are not held up; but the transaction must not be
// ended meanwhile.
func (tx *Tx) ForEachPage(fn func(PageRun) error) error {
	space, err := tx.freeSpace()
	var damage *CorruptError
	if err != nil && !errors.As(err, &damage) {
		return err
	}
	in := check.Input{
		Image: tx.state.Image(), Meta: tx.state.Meta,
		Free: space.Free, Reserved: space.Reserved, Records: space.Records, Accounted: damage == nil,
	}
	if tx.db.readOnly { // else a freelist page may be written over meanwhile
		in.Listed = space.List
	}
	if damage != nil && in.Meta.Freelist != page.NoFreelist {
		in.Freelist = in.Meta.Freelist
	}
	if !tx.db.noSeals {
		in.Seals = &check.Seals{}
	}
	for r := range check.Layout(in, damage) {
		if tx.foreign != nil {
			if gone := tx.foreign.Live(); gone != nil {
				return tx.keep(gone)
			}
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return cmp.Or(tx.confirmed(), err)
}

// freeSpace is what the transaction's pages are, besides the trees.
func (tx *Tx) freeSpace() (pager.Accounting, error) {
	if err := tx.usable(); err != nil {
		return pager.Accounting{}, err
	}
	if err := tx.waitForBase(); err != nil {
		return pager.Accounting{}, err
	}
	space, err := tx.account()
	if err == nil && !space.Exact {
		err = ErrNewerCommit
	}
	return space, cmp.Or(tx.confirmed(), err)
}
