package check

import (
	"cmp"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"

	"holdfast/internal/page"
)

// PageKind is what pages are used for.
type PageKind string

// Kinds of pages.
const (
	KindMeta     PageKind = "meta"
	KindBranch   PageKind = "branch"
	KindLeaf     PageKind = "leaf"
	KindFreelist PageKind = "freelist" // the free pages, as bbolt stores them
	KindRecord   PageKind = "record"   // the free pages, as Holdfast records them
	KindFree     PageKind = "free"
	KindDamaged  PageKind = "damaged" // in use, and cannot be read
	KindUnknown  PageKind = "unknown" // in use or free: damage elsewhere hides which
)

// PageRun is a run of consecutive pages that belong together: a page with its overflow
// pages, or pages that are free, as many as there are side by side.
type PageRun struct {
	ID    page.ID // the first page
	Pages uint64
	Kind  PageKind
	// Elements are those of a branch or a leaf, or the page numbers on a freelist page.
	// UsedBytes are what these take, with their keys and values and the page's header.
	// Both are 0 for other kinds.
	Elements  uint64
	UsedBytes uint64
	Err       *page.CorruptError // what is wrong with the pages of KindDamaged; else nil
}

// End is the first page after the run.
func (r PageRun) End() page.ID { return r.ID + page.ID(r.Pages) }

// Layout yields what the pages below the high-water mark are: runs in ascending order,
// each page in one of them. It reads the pages that are not free and follows no tree,
// so what it calls a leaf is what says so of itself; Run tells whether that is right.
//
// If in.Accounted is false it goes through all trees first, past any damage, and what
// they do not use is free, or of KindUnknown if parts of them cannot be read. damage,
// which may be nil, is why it is false: it is shown at its page. A page that the system
// cannot deliver is damaged as any other.
func Layout(in Input, damage *page.CorruptError) iter.Seq[PageRun] {
	return func(yield func(PageRun) bool) {
		l := newLayout(in, damage)
		for id := page.ID(0); id < in.Meta.HighWater; {
			r := l.run(id)
			if !yield(r) {
				return
			}
			id = r.End()
		}
	}
}

// maxDamaged is how many damaged runs are met before the rest is not read.
const maxDamaged = 1 << 20

// layout knows the pages that are not a tree's.
type layout struct {
	in     Input
	damage *page.CorruptError
	// outside are ascending extents of one kind each. Where, in a damaged file, two of
	// them claim a page, the first counts.
	outside []outside
	damaged int // runs met, as far as they were read
}

type outside struct {
	kind    PageKind
	extents []page.Extent
}

func newLayout(in Input, damage *page.CorruptError) *layout {
	metas := []page.Extent{{Start: 0, N: 1}, {Start: 1, N: 1}}
	free, freeKind := in.Free, KindFree
	var lists []page.Extent
	for _, e := range in.Reserved {
		if !slices.Contains(in.Records, e) {
			lists = append(lists, e)
		}
	}
	if !in.Accounted {
		used, whole := reachable(in)
		free = used.missing()
		if !whole {
			freeKind = KindUnknown
		}
		if in.Freelist != 0 {
			lists = append(lists, freelistExtent(in))
		}
	}
	return &layout{in: in, damage: damage, outside: []outside{
		{KindMeta, metas}, {KindFreelist, ascending(lists)}, {KindRecord, ascending(in.Records)}, {freeKind, ascending(free)},
	}}
}

// ascending sorts extents; it leaves the argument alone.
func ascending(extents []page.Extent) []page.Extent {
	byStart := func(a, b page.Extent) int { return cmp.Compare(a.Start, b.Start) }
	if slices.IsSortedFunc(extents, byStart) {
		return extents
	}
	extents = slices.Clone(extents)
	slices.SortFunc(extents, byStart)
	return extents
}

// reachable goes through all trees. It returns the pages that they use, and whether
// that is all of them: damage hides what lies below it.
func reachable(in Input) (used bitmap, whole bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	whole = true
	limit := in.Meta.HighWater
	c := &checker{
		in:     Input{Image: in.Image, Meta: in.Meta, Key: func([]byte) string { return "" }},
		report: func(*page.CorruptError) bool { whole = false; return true },
		used:   newBitmap(limit),
		free:   newBitmap(limit),
	}
	c.used.add(page.Extent{N: uint64(page.FirstDataPage)})
	c.tree(in.Meta.Root, nil, reference{})
	return c.used, whole
}

// missing are the pages that are not in, as ascending extents.
func (b *bitmap) missing() (extents []page.Extent) {
	for id := page.ID(0); id < b.limit; {
		n, out := uint64(1), !b.has(id)
		if word := b.bits[id/64]; id%64 == 0 && (word == 0 || word == ^uint64(0)) { // all 64 alike
			n = min(64, uint64(b.limit-id))
		}
		if last := len(extents) - 1; out && last >= 0 && extents[last].End() == id {
			extents[last].N += n
		} else if out {
			extents = append(extents, page.Extent{Start: id, N: n})
		}
		id += page.ID(n)
	}
	return extents
}

// freelistExtent are the pages of the damaged freelist page, as far as it tells.
func freelistExtent(in Input) page.Extent {
	e := page.Extent{Start: in.Freelist, N: 1}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil && in.Image.Fault(r) == nil {
			panic(r)
		}
	}()
	if _, pages, err := in.Image.FreelistIDs(in.Freelist); err == nil {
		e.N = pages
	}
	return e
}

// run is the run that begins at page id.
func (l *layout) run(id page.ID) PageRun {
	limit := l.in.Meta.HighWater // of what begins at id
	var kind PageKind
	for i := range l.outside {
		o := &l.outside[i]
		for len(o.extents) > 0 && o.extents[0].End() <= id {
			o.extents = o.extents[1:]
		}
		switch {
		case len(o.extents) == 0:
		case o.extents[0].Start > id:
			limit = min(limit, o.extents[0].Start)
		case kind == "":
			kind, limit = o.kind, min(limit, o.extents[0].End())
		}
	}
	r := PageRun{ID: id, Pages: uint64(limit - id), Kind: kind}
	switch {
	case kind == "" && l.damaged >= maxDamaged:
		r.Kind = KindUnknown
		return r
	case kind == "" || kind == KindFreelist:
		l.look(&r)
	}
	if d := l.damage; d != nil && d.Page >= id && d.Page < r.End() && (kind == "" || kind == KindFreelist) && r.Err == nil {
		r.fail(d)
	}
	if r.Err != nil {
		l.damaged++
	}
	return r
}

// fail makes a damaged run of r.
func (r *PageRun) fail(err *page.CorruptError) {
	*r = PageRun{ID: r.ID, Pages: r.Pages, Kind: KindDamaged, Err: err}
}

// look reads the page with which r begins. r has the pages up to the next that are known
// to be something else.
func (l *layout) look(r *PageRun) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	room := r.Pages
	defer func() {
		recovered := recover()
		if recovered == nil {
			return
		}
		fault := l.in.Image.Fault(recovered)
		if fault == nil {
			panic(recovered)
		}
		r.Pages = min(r.Pages, room)
		r.fail(fault)
	}()
	if r.Kind == KindFreelist {
		l.lookAtFreelist(r)
		return
	}
	r.Pages = 1 // unless the page can be believed to have more
	h, err := l.in.Image.Header(r.ID)
	if err == nil && h.ID == r.ID && (h.Flags == page.FlagLeaf || h.Flags == page.FlagBranch) {
		if n := uint64(h.Overflow) + 1; n <= room {
			r.Pages = n
		} else {
			err = page.Corruptf(r.ID, "it says that it has %d pages, but page %d is none of them", n, r.ID+page.ID(room))
		}
	}
	if err == nil {
		err = l.lookAtTree(r)
	}
	if err != nil {
		r.fail(asDamage(r.ID, err))
	}
}

// lookAtTree reads a page of a tree.
func (l *layout) lookAtTree(r *PageRun) error {
	p, err := l.in.Image.Page(r.ID)
	if err != nil {
		return err
	}
	used, err := p.UsedBytes()
	switch {
	case err != nil:
		return err
	case used > len(p.Bytes()):
		return page.Corruptf(r.ID, "its elements take %d bytes, and it has %d", used, len(p.Bytes()))
	}
	r.Kind = KindBranch
	if p.IsLeaf() {
		r.Kind = KindLeaf
	}
	r.Elements, r.UsedBytes = uint64(p.Count()), uint64(used)
	return nil
}

// lookAtFreelist reads a freelist page. It matters whether that one is whole from which
// free pages are found; no others are read any more.
func (l *layout) lookAtFreelist(r *PageRun) {
	ids, _, err := l.in.Image.FreelistIDs(r.ID)
	if err == nil {
		var seal page.SealState
		if seal, err = l.in.Image.FreelistSeal(r.ID); err == nil && seal == page.WrongSeal && l.in.Seals != nil {
			err = page.WrongSealError(r.ID)
		}
	}
	if err != nil {
		if r.ID == l.in.Listed || r.ID == l.in.Freelist {
			r.fail(asDamage(r.ID, err))
		}
		return
	}
	for range ids {
		r.Elements++
	}
	r.UsedBytes = page.FreelistSize(r.Elements)
}

// asDamage is err, which a decoder returned for page id.
func asDamage(id page.ID, err error) *page.CorruptError {
	if damage, ok := err.(*page.CorruptError); ok {
		return damage
	}
	return &page.CorruptError{Page: id, Reason: fmt.Sprint(err)}
}
