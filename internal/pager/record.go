package pager

import (
	"fmt"
	"iter"
	"slices"

	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/plant"
	"holdfast/internal/space"
)

// record is the free set as the extension of the newest meta records it: a
// snapshot, log runs, and inline changes (docs/format.md). Each commit's change is
// a few bytes in a meta page that is written anyway. When the inline room is
// full its changes move to a page of a log run; when there are as many log runs
// as an extension names, a new snapshot replaces all. Runs are in use, in no
// tree, and freed and used again under the rules of tree pages; to bbolt they
// are free.
type record struct {
	ext    extension.Extension
	hasher *extension.Hasher
	known  bool   // the extension records the free set: else the next commit does
	log    []byte // of the newest log run
}

// newRecord is the record of an opening that knows nothing yet. Without checksums
// nothing is recorded, and each opening scans. Nothing in it is random: the same
// history makes the same file.
func (p *Pager) newRecord() record {
	var r record
	var err error
	if r.hasher, err = extension.NewHasher(r.ext.Key); err != nil {
		p.logf("%s: %v: free pages are not recorded", p.file.Name(), err)
	}
	return r
}

// runs are the page runs of the record.
func (r *record) runs() iter.Seq[page.Extent] {
	return func(yield func(page.Extent) bool) {
		if s := r.ext.Free.Snapshot; s.Pages > 0 && !yield(s.Extent()) {
			return
		}
		for _, l := range r.ext.Free.Logs {
			if !yield(l.Extent()) {
				return
			}
		}
	}
}

// recording is the record as a commit leaves it.
type recording struct {
	record
	pages []run // to be written with the commit's

	whole    bool // the set is recorded anew, once the transaction is committed
	snapshot page.Extent
}

// Bounds on log runs, in bytes and in runs of an extension: room for the commits
// of a while, and not much of a small file.
const (
	maxLogBytes = 256 << 10
	minInline   = 64
)

// recordPages bounds the pages of the record as the transaction will leave it.
func (p *Pager) recordPages(txn *space.Txn) (n uint64) {
	for e := range p.record.runs() {
		n += e.N
	}
	return n + uint64(p.logPages(txn)) + extension.MaxSnapshot(p.space.HighWater())/uint64(p.pageSize) + 2
}

// plan begins the recording of a transaction that is complete but for the pages
// that the recording takes. Call complete behind txn.Commit.
func (p *Pager) plan(txn *space.Txn) (*recording, error) {
	cur := &p.record
	next := &recording{record: *cur}
	if cur.hasher == nil || extension.Room(p.pageSize, 0) < minInline {
		next.hasher = nil
		return next, nil
	}
	if !cur.known {
		return next, p.planWhole(txn, next)
	}
	free := &next.ext.Free
	inline := extension.AppendChange(slices.Clone(free.Inline), txn.Allocated(), txn.Freed())
	if plant.On(plant.ChangeLost) {
		inline = extension.AppendChange(slices.Clone(free.Inline), txn.Allocated(), nil)
	}
	if len(inline) <= extension.Room(p.pageSize, len(free.Logs)) {
		free.Inline = inline
		return next, nil
	}
	if ok, err := p.planLog(txn, next, len(inline)); ok || err != nil {
		return next, err
	}
	return next, p.planWhole(txn, next)
}

// planLog moves the inline changes and the transaction's, size bytes of them, to
// the log; false if there is no place for them.
func (p *Pager) planLog(txn *space.Txn, next *recording, size int) (ok bool, err error) {
	free := &next.ext.Free
	const more = 64 // bytes by which a run that is allocated makes the change longer
	n := extension.ChunkPages(size+more, p.pageSize)
	last := len(free.Logs) - 1
	if last < 0 || int(free.Logs[last].Pages)-len(next.log)/p.pageSize < n {
		if len(free.Logs) == extension.MaxLogs || extension.Room(p.pageSize, len(free.Logs)+1) < minInline {
			return false, nil
		}
		pages := max(n, p.logPages(txn))
		start, err := txn.Allocate(uint64(pages))
		if err != nil {
			return false, err
		}
		free.Logs = append(slices.Clone(free.Logs), extension.Run{Start: start, Pages: uint32(pages)})
		next.log = nil
		last++
	} else {
		free.Logs = slices.Clone(free.Logs)
	}
	if plant.On(plant.InlineLost) {
		free.Inline = nil
	}
	records := extension.AppendChange(slices.Clone(free.Inline), txn.Allocated(), txn.Freed())
	at := len(next.log)
	next.log = extension.AppendChunk(slices.Clone(next.log), records, p.pageSize)
	l := &free.Logs[last]
	if len(next.log) > int(l.Pages)*p.pageSize {
		return false, fmt.Errorf("a log run of %d pages is too short for %d bytes", l.Pages, len(next.log))
	}
	l.Bytes = uint32(len(next.log))
	l.Hash = next.hasher.Sum(extension.OfLog, l.Start, next.log)
	next.write(l.Start+page.ID(at/p.pageSize), next.log[at:])
	free.Inline = nil
	return true, nil
}

// logPages is the length of a new log run: more in a large file, and as much as
// the snapshot that the runs together stand for.
func (p *Pager) logPages(txn *space.Txn) int {
	n := max(2, int(txn.HighWater()/64), int(p.record.ext.Free.Snapshot.Pages)/extension.MaxLogs)
	return min(n, max(2, maxLogBytes/p.pageSize))
}

func (r *recording) write(id page.ID, bytes []byte) {
	r.pages = append(r.pages, run{id: id, buffer: buffer{bytes: bytes}})
}

// planWhole gives up all runs, and takes pages for a snapshot unless the set is
// so small that it fits into the extension.
func (p *Pager) planWhole(txn *space.Txn, next *recording) error {
	for e := range next.runs() {
		if plant.On(plant.RunsKeptForever) {
			break
		}
		if err := txn.Free(e); err != nil {
			return err
		}
	}
	next.ext.Free = extension.FreeSet{}
	next.log, next.whole, next.known = nil, true, true
	if p.isSmall(txn) {
		return nil
	}
	ps := uint64(p.pageSize)
	n := (extension.MaxSnapshot(txn.HighWater()) + ps - 1) / ps
	n = (extension.MaxSnapshot(txn.HighWater()+page.ID(n)+1) + ps - 1) / ps // the pages themselves may raise the mark
	start, err := txn.Allocate(n)
	next.snapshot = page.Extent{Start: start, N: n}
	return err
}

// extentBytes is the most that an extent takes in a change.
const extentBytes = 2 * 7

// isSmall tells whether the set fits into half of an extension.
func (p *Pager) isSmall(txn *space.Txn) bool {
	room := extension.Room(p.pageSize, 0)/2 - 16
	n := len(txn.Freed())
	for range p.space.Unused() {
		if n++; n*extentBytes > room {
			return false
		}
	}
	return n*extentBytes <= room
}

// complete ends the recording of a transaction that is committed; its meta goes
// to slot and names the freelist page list, if it has any pages.
func (p *Pager) complete(next *recording, tx page.TxID, slot int, list page.Extent) {
	next.ext.Tx = tx
	next.ext.List = uint32(list.N)
	next.ext.OtherList = p.lists[1-slot]
	next.ext.Free.Count = p.space.FreeCount() + p.space.PendingCount()
	if !next.whole {
		return
	}
	free := &next.ext.Free
	if next.snapshot.N == 0 {
		free.Inline = extension.AppendChange(nil, nil, slices.Collect(p.space.Unused()))
		return
	}
	b := make([]byte, 0, next.snapshot.N*uint64(p.pageSize))
	b = extension.AppendSnapshot(b, p.space.Unused(), p.space.HighWater())
	free.Snapshot = extension.Run{
		Start: next.snapshot.Start, Pages: uint32(next.snapshot.N), Bytes: uint32(len(b)),
		Hash: next.hasher.Sum(extension.OfSnapshot, next.snapshot.Start, b),
	}
	pages := (len(b) + p.pageSize - 1) / p.pageSize
	next.write(next.snapshot.Start, b[:pages*p.pageSize])
}

// readRecord makes the free set of state s from the extension in slot best. Any
// error means that it is not to be believed.
func (p *Pager) readRecord(s *State, best int) (*space.Space, *record, error) {
	ext, err := extension.Decode(p.metaPages[best])
	if err != nil {
		return nil, nil, err
	}
	label := p.slots.Meta[best].Label
	own := int(label%2) == best && (p.slots.Err[1-best] != nil || p.slots.Meta[1-best].Label < label)
	if !own && !plant.On(plant.AnySlotBelieved) {
		return nil, nil, fmt.Errorf("the extension stands in slot %d under label %d", best, label)
	}
	old, err := extension.NewHasher(ext.Key)
	if err != nil {
		return nil, nil, err
	}
	rec := p.record // with a new key
	key := rec.ext.Key
	rec.ext, rec.known = *ext, true
	rec.ext.Key = key
	high := s.Meta.HighWater
	sp := space.New(high)
	read := func(r *extension.Run, purpose extension.Purpose) ([]byte, error) {
		b, err := p.readRun(*r, high)
		if err != nil {
			return nil, err
		}
		if old.Sum(purpose, r.Start, b) != r.Hash && !plant.On(plant.RunUnchecked) {
			return nil, page.Corruptf(r.Start, "the checksum of a record of free pages does not hold")
		}
		r.Hash = rec.hasher.Sum(purpose, r.Start, b)
		return b, nil
	}
	free := &rec.ext.Free
	if free.Snapshot.Pages > 0 {
		b, err := read(&free.Snapshot, extension.OfSnapshot)
		if err == nil {
			err = extension.Snapshot(b, high, sp.AddFree)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	for i := range free.Logs {
		if rec.log, err = read(&free.Logs[i], extension.OfLog); err == nil {
			err = extension.Log(rec.log, p.pageSize, high, sp.TakeFree, sp.AddFree)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if err := extension.Changes(free.Inline, high, sp.TakeFree, sp.AddFree); err != nil {
		return nil, nil, err
	}
	if err := p.checkRecord(s, sp, &rec); err != nil {
		return nil, nil, err
	}
	for e := range rec.runs() {
		if plant.On(plant.RunGivenAway) {
			_ = sp.AddFree(e)
		}
	}
	return sp, &rec, nil
}

// readRun reads what means something of a run.
func (p *Pager) readRun(r extension.Run, high page.ID) ([]byte, error) {
	if err := r.Check(high, p.pageSize); err != nil {
		return nil, err
	}
	b := make([]byte, r.Bytes)
	if _, err := p.file.ReadAt(b, int64(r.Start)*int64(p.pageSize)); err != nil {
		return nil, p.wrap("read a record of free pages of", err)
	}
	return b, nil
}

// checkRecord tells whether the free set can be that of state s.
func (p *Pager) checkRecord(s *State, sp *space.Space, rec *record) error {
	if n := sp.FreeCount(); n != rec.ext.Free.Count {
		return fmt.Errorf("the record has %d free pages and says that there are %d", n, rec.ext.Free.Count)
	}
	if sp.IsUnused(s.Meta.Root) {
		return page.Corruptf(s.Meta.Root, "the root page is recorded as free")
	}
	lists := []page.Extent{{Start: s.Meta.Freelist, N: uint64(rec.ext.List)}, rec.ext.OtherList}
	if (s.Meta.Freelist == page.NoFreelist) != (rec.ext.List == 0) {
		return fmt.Errorf("the freelist page is recorded with %d pages", rec.ext.List)
	}
	for e := range rec.runs() {
		lists = append(lists, e)
	}
	for _, e := range lists {
		if e.N > 0 && (e.Start < page.FirstDataPage || e.Start >= s.Meta.HighWater || e.N > uint64(s.Meta.HighWater-e.Start) || sp.AnyUnused(e)) {
			return page.Corruptf(e.Start, "%d pages from here on are recorded as in use and as free, or do not exist", e.N)
		}
	}
	return nil
}
