package pager

import (
	"cmp"
	"slices"

	"holdfast/internal/page"
)

// overlay is page runs that are not in the file yet, laid over a state: what
// the transactions prepared since then have written, the newest last.
type overlay [][]run

// find returns the newest run that begins at page id, and nil if there is none.
func (o overlay) find(id page.ID) []byte {
	for i := len(o) - 1; i >= 0; i-- {
		runs := o[i]
		if at, ok := slices.BinarySearchFunc(runs, id, func(r run, id page.ID) int { return cmp.Compare(r.id, id) }); ok {
			return runs[at].bytes
		}
	}
	return nil
}

// sortRuns puts runs in file order, in which they are searched and written.
func sortRuns(runs []run) {
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.id, b.id) })
}
