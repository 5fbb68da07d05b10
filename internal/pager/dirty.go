package pager

import (
	"slices"
	"sort"

	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// dirty is what a trailing extension lists: the pages that are in the newest state
// and were not in the durable one, and the sum of their checksums. With Periodic they
// are those of several commits, each of which changes a few; so nothing here
// goes through all of them for one.
type dirty struct {
	extents []page.Extent // ascending, maximal
	size    int64         // bytes
	hash    extension.Hash
	runs    map[page.ID]dirtyRun // by first page: what to take off when one is freed
	most    int                  // the most that were in runs since it was made
	unknown bool                 // the rest is not that of the newest state: nothing is listed before the next flush
}

// dirtyRun is a page run as it was written.
type dirtyRun struct {
	pages uint64
	hash  extension.Hash
}

// Bounds of what a trailing extension lists, in bytes of pages, which an opening
// after a crash reads, and in page runs.
const (
	maxListed     = 64 << 20
	maxListedRuns = 4096
)

// free takes off what of the pages of freed, ascending, is in the set. Runs are freed
// whole.
func (d *dirty) free(freed []page.Extent, pageSize int) {
	if len(d.runs) == 0 {
		return
	}
	for _, e := range freed {
		if e.N > uint64(len(d.runs)) {
			for id, r := range d.runs {
				if e.Start <= id && id < e.End() {
					d.forget(id, r, pageSize)
				}
			}
		} else {
			for id := e.Start; id < e.End(); id++ {
				if r, ok := d.runs[id]; ok {
					d.forget(id, r, pageSize)
				}
			}
		}
		d.subtract(e)
	}
}

func (d *dirty) forget(id page.ID, r dirtyRun, pageSize int) {
	d.hash.Add(r.hash)
	d.size -= int64(r.pages) * int64(pageSize)
	delete(d.runs, id)
}

// subtract takes the pages of e off the extents, as far as they are there.
func (d *dirty) subtract(e page.Extent) {
	from := sort.Search(len(d.extents), func(i int) bool { return d.extents[i].End() > e.Start })
	to := from
	var left [2]page.Extent
	n := 0
	for ; to < len(d.extents) && d.extents[to].Start < e.End(); to++ {
		x := d.extents[to]
		if x.Start < e.Start {
			left[n] = page.Extent{Start: x.Start, N: uint64(e.Start - x.Start)}
			n++
		}
		if x.End() > e.End() {
			left[n] = page.Extent{Start: e.End(), N: uint64(x.End() - e.End())}
			n++
		}
	}
	if from < to {
		d.extents = slices.Replace(d.extents, from, to, left[:n]...)
	}
}

// write puts in runs that were written, in file order. It returns false, and leaves
// anything there, if that makes more than limit extents or more than may be
// listed. If all is durable soon, so that the set is cleared before it is
// changed again, it need not remember the runs.
func (d *dirty) write(runs []run, h *extension.Hasher, pageSize, limit int, remember bool) bool {
	for i := range runs {
		r := &runs[i]
		d.size += int64(len(r.bytes))
		if d.size > maxListed || len(d.runs) > maxListedRuns {
			return false
		}
		var sum extension.Hash
		h.Pages(&sum, r.id, r.bytes, pageSize, r.contentEnd())
		d.hash.Add(sum)
		n := uint64(len(r.bytes) / pageSize)
		if d.add(page.Extent{Start: r.id, N: n}); len(d.extents) > limit {
			return false
		}
		if remember {
			if d.runs == nil {
				d.runs = make(map[page.ID]dirtyRun)
			}
			d.runs[r.id] = dirtyRun{n, sum}
			d.most = max(d.most, len(d.runs))
		}
	}
	return true
}

// add puts e, of which nothing is there, among the extents.
func (d *dirty) add(e page.Extent) {
	at := len(d.extents)
	if at > 0 && d.extents[at-1].Start > e.Start {
		at = sort.Search(at, func(i int) bool { return d.extents[i].Start > e.Start })
	}
	behind := at < len(d.extents) && d.extents[at].Start == e.End()
	if at > 0 && d.extents[at-1].End() == e.Start {
		d.extents[at-1].N += e.N
		if behind {
			d.extents[at-1].N += d.extents[at].N
			d.extents = slices.Delete(d.extents, at, at+1)
		}
		return
	}
	if behind {
		d.extents[at].Start, d.extents[at].N = e.Start, d.extents[at].N+e.N
		return
	}
	d.extents = slices.Insert(d.extents, at, e)
}

// clear empties the set, and keeps its memory, but for that of many runs: each commit clears it,
// which takes as long as it is for the most runs that there were.
func (d *dirty) clear() {
	if d.most > maxIdleDirty {
		d.runs, d.most = nil, 0
	}
	clear(d.runs)
	*d = dirty{extents: d.extents[:0], runs: d.runs, most: d.most}
}

// maxIdleDirty is the number of runs whose memory is kept.
const maxIdleDirty = 256
