package commit

import (
	"slices"
	"sort"

	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// Dirty is what a trailing extension lists: the pages that are in the newest state
// and were not in the durable one, and the sum of their checksums. With Periodic they
// are those of several commits, each of which changes a few; so nothing here
// goes through all of them for one. It is the leader's.
type Dirty struct {
	PageSize int           // in bytes
	Extents  []page.Extent // ascending, maximal
	Size     int64         // bytes
	Hash     extension.Hash
	Unknown  bool // the rest is not that of the newest state: nothing is listed before the next flush

	runs map[page.ID]dirtyRun // by first page: what to take off when one is freed
	most int                  // the most that were in runs since it was made
}

// dirtyRun is a page run as it was written.
type dirtyRun struct {
	pages uint64
	hash  extension.Hash
}

// Bounds of what a trailing extension lists, in bytes of pages, which an opening
// after a crash reads, and in page runs.
const (
	MaxListed     = 64 << 20
	maxListedRuns = 4096
)

// Free takes off what of the pages of freed, ascending, is in the set. Runs are freed
// whole.
func (d *Dirty) Free(freed []page.Extent) {
	if len(d.runs) == 0 {
		return
	}
	for _, e := range freed {
		if e.N > uint64(len(d.runs)) {
			for id, r := range d.runs {
				if e.Start <= id && id < e.End() {
					d.forget(id, r)
				}
			}
		} else {
			for id := e.Start; id < e.End(); id++ {
				if r, ok := d.runs[id]; ok {
					d.forget(id, r)
				}
			}
		}
		d.subtract(e)
	}
}

func (d *Dirty) forget(id page.ID, r dirtyRun) {
	d.Hash.Add(r.hash)
	d.Size -= int64(r.pages) * int64(d.PageSize)
	delete(d.runs, id)
}

// subtract takes the pages of e off the extents, as far as they are there.
func (d *Dirty) subtract(e page.Extent) {
	from := sort.Search(len(d.Extents), func(i int) bool { return d.Extents[i].End() > e.Start })
	to := from
	var left [2]page.Extent
	n := 0
	for ; to < len(d.Extents) && d.Extents[to].Start < e.End(); to++ {
		x := d.Extents[to]
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
		d.Extents = slices.Replace(d.Extents, from, to, left[:n]...)
	}
}

// Write puts in a page run that was written, and is zero from end on but for a seal. It returns
// false, and leaves anything there, if that makes more than limit extents or more than may be
// listed. If all is durable soon, so that the set is cleared before it is
// changed again, it need not remember the run.
func (d *Dirty) Write(id page.ID, bytes []byte, end int, h *extension.Hasher, limit int, remember bool) bool {
	d.Size += int64(len(bytes))
	if d.Size > MaxListed || len(d.runs) > maxListedRuns {
		return false
	}
	var sum extension.Hash
	h.Pages(&sum, id, bytes, d.PageSize, end)
	d.Hash.Add(sum)
	n := uint64(len(bytes) / d.PageSize)
	if d.add(page.Extent{Start: id, N: n}); len(d.Extents) > limit {
		return false
	}
	if remember {
		if d.runs == nil {
			d.runs = make(map[page.ID]dirtyRun)
		}
		d.runs[id] = dirtyRun{n, sum}
		d.most = max(d.most, len(d.runs))
	}
	return true
}

// add puts e, of which nothing is there, among the extents.
func (d *Dirty) add(e page.Extent) {
	at := len(d.Extents)
	if at > 0 && d.Extents[at-1].Start > e.Start {
		at = sort.Search(at, func(i int) bool { return d.Extents[i].Start > e.Start })
	}
	follows := at < len(d.Extents) && d.Extents[at].Start == e.End()
	if at > 0 && d.Extents[at-1].End() == e.Start {
		d.Extents[at-1].N += e.N
		if follows {
			d.Extents[at-1].N += d.Extents[at].N
			d.Extents = slices.Delete(d.Extents, at, at+1)
		}
		return
	}
	if follows {
		d.Extents[at].Start, d.Extents[at].N = e.Start, d.Extents[at].N+e.N
		return
	}
	d.Extents = slices.Insert(d.Extents, at, e)
}

// Clear empties the set, and keeps its memory, but for that of many runs: each commit clears it,
// which takes as long as it is for the most runs that there were.
func (d *Dirty) Clear() {
	if d.most > maxIdleDirty {
		d.runs, d.most = nil, 0
	}
	clear(d.runs)
	*d = Dirty{PageSize: d.PageSize, Extents: d.Extents[:0], runs: d.runs, most: d.most}
}

// maxIdleDirty is the number of runs whose memory is kept.
const maxIdleDirty = 256
