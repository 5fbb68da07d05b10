package pager

import (
	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// dirty is what a trailing extension lists: the page runs that are in the newest
// state and were not in the durable one, ascending. With Periodic they are those
// of several commits. It is never changed, but replaced.
type dirty struct {
	runs []dirtyRun
	size int64          // bytes
	hash extension.Hash // of all
}

type dirtyRun struct {
	page.Extent
	hash extension.Hash
}

// next makes into the dirty set that follows d when the pages of freed, ascending,
// have been given up and those of runs, in file order, written. It returns false,
// and leaves anything there, if it would be more than maxRuns or maxListed bytes.
func (d *dirty) next(into *dirty, freed []page.Extent, runs []run, h *extension.Hasher, pageSize, maxRuns int) bool {
	*into = dirty{runs: into.runs[:0]}
	old := d.runs
	for len(old) > 0 || len(runs) > 0 {
		if len(runs) > 0 && (len(old) == 0 || runs[0].id < old[0].Start) {
			r := &runs[0]
			runs = runs[1:]
			add := dirtyRun{Extent: page.Extent{Start: r.id, N: uint64(len(r.bytes) / pageSize)}}
			h.Pages(&add.hash, r.id, r.bytes, pageSize)
			into.add(add, pageSize)
		} else {
			r := old[0]
			old = old[1:]
			for len(freed) > 0 && freed[0].End() <= r.Start {
				freed = freed[1:]
			}
			if len(freed) == 0 || freed[0].Start > r.Start {
				into.add(r, pageSize)
			}
		}
		if len(into.runs) > maxRuns || into.size > maxListed {
			return false
		}
	}
	return true
}

func (d *dirty) add(r dirtyRun, pageSize int) {
	d.runs = append(d.runs, r)
	d.size += int64(r.N) * int64(pageSize)
	d.hash.Add(r.hash)
}

// clear empties the set, and keeps its memory.
func (d *dirty) clear() { *d = dirty{runs: d.runs[:0]} }

// extents appends the pages as extents to list.
func (d *dirty) extents(list []page.Extent) []page.Extent {
	for i := range d.runs {
		e := d.runs[i].Extent
		if last := len(list) - 1; last >= 0 && list[last].End() == e.Start {
			list[last].N += e.N
		} else {
			list = append(list, e)
		}
	}
	return list
}
