package pager

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"iter"
	"math"
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
	free   extension.FreeSet
	hasher *extension.Hasher // of runs, used with commit held; nil: nothing is recorded
	known  bool              // free is the set: else the next commit records it
	log    []byte            // of the newest log run
}

// newRecord is the record of an opening that knows nothing yet, and the hashers
// of the leader. Without checksums nothing is recorded, each opening scans, and
// each commit takes two flushes. Nothing in a record is random: the same history
// makes the same file, once it is closed.
func (p *Pager) newRecord() {
	p.record = record{}
	var zero [16]byte
	var err error
	if p.record.hasher, err = extension.NewHasher(zero); err != nil {
		p.logf("%s: %v: free pages are not recorded", p.file.Name(), err)
		return
	}
	l := &p.leader
	rand.Read(l.key[:])
	if l.metas, err = extension.NewHasher(zero); err == nil {
		l.pages, err = extension.NewHasher(l.key)
	}
	if err != nil {
		p.logf("%s: %v", p.file.Name(), err)
	}
}

// runs are the page runs of the record.
func (r *record) runs() iter.Seq[page.Extent] {
	return func(yield func(page.Extent) bool) {
		if s := r.free.Snapshot; s.Pages > 0 && !yield(s.Extent()) {
			return
		}
		for _, l := range r.free.Logs {
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
	bits     bool // the snapshot is to be a bitmap
}

// Bounds on log runs, in bytes and in runs of an extension: room for the commits
// of a while, and not much of a small file.
const (
	maxLogBytes = 256 << 10
	maxChange   = 1 << 20 // a longer one is recorded as a snapshot
	minInline   = 64
)

// recordPages bounds the pages of the record as a transaction will leave it, which
// may raise the high-water mark to highWater before.
func (p *Pager) recordPages(highWater page.ID) (n uint64) {
	for e := range p.record.runs() {
		n += e.N
	}
	snapshot, _ := p.snapshotPages(math.MaxUint32, highWater)
	return n + uint64(p.logPages()) + snapshot + 2
}

// plan makes of next the recording of a transaction that is complete but for the
// pages that the recording takes. Call complete after txn.Commit. whole: the set is
// recorded anew; what is recorded already may name pages above a high-water mark that
// was lowered.
func (p *Pager) plan(txn *space.Txn, next *recording, whole bool) error {
	cur := &p.record
	*next = recording{record: *cur}
	if cur.hasher == nil || p.inlineRoom(0) < minInline {
		next.hasher, next.known = nil, false
		return nil
	}
	if !cur.known || whole && !plant.On(plant.LoweredInLog) {
		return p.planWhole(txn, next)
	}
	// Records share memory: each appends after those before it, and what a
	// transaction appended that was aborted is written over.
	free, freed := &next.free, txn.Freed()
	if plant.On(plant.ChangeLost) {
		freed = nil
	}
	inline := extension.AppendChange(free.Inline, txn.Allocated(), freed)
	if len(inline) <= p.inlineRoom(len(free.Logs)) {
		free.Inline = inline
		return nil
	}
	if p.fitsInline(txn) {
		return p.planWhole(txn, next)
	}
	if ok, err := p.planLog(txn, next, len(inline)); ok || err != nil {
		return err
	}
	return p.planWhole(txn, next)
}

// inlineRoom is how many bytes of changes an extension takes: the rest is for what
// a flush has written.
func (p *Pager) inlineRoom(logs int) int {
	return extension.Room(p.pageSize, logs, extension.MaxLists) * 3 / 4
}

// planLog moves the inline changes and the transaction's, size bytes of them, to
// the log; false if there is no place for them.
func (p *Pager) planLog(txn *space.Txn, next *recording, size int) (ok bool, err error) {
	free := &next.free
	const more = 64 // bytes by which a run that is allocated makes the change longer
	if size+more > maxChange {
		return false, nil
	}
	n := extension.ChunkPages(size+more, p.pageSize)
	last := len(free.Logs) - 1
	if last < 0 || int(free.Logs[last].Pages)-len(next.log)/p.pageSize < n {
		if len(free.Logs) == extension.MaxLogs || p.inlineRoom(len(free.Logs)+1) < minInline {
			return false, nil
		}
		pages := max(n, p.logPages())
		for pages > n && !p.hasRoom(pages) {
			pages = max(n, pages/2)
		}
		if !p.hasRoom(pages) {
			return false, nil
		}
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
	records := extension.AppendChange(free.Inline, txn.Allocated(), txn.Freed())
	at := len(next.log)
	if plant.On(plant.LogRewritten) && at > 0 {
		next.log = slices.Clone(next.log)
		next.log[at-1]++ // which means nothing
	}
	next.log = extension.AppendChunk(next.log, records, p.pageSize)
	l := &free.Logs[last]
	if len(next.log) > int(l.Pages)*p.pageSize {
		return false, fmt.Errorf("a log run of %d pages is too short for %d bytes", l.Pages, len(next.log))
	}
	l.Bytes = uint32(len(next.log))
	l.Hash = next.hasher.Sum(extension.OfLog, l.Start, next.log)
	if plant.On(plant.LogRewritten) {
		at = 0
	}
	next.write(l.Start+page.ID(at/p.pageSize), next.log[at:])
	free.Inline = nil
	return true, nil
}

// logPages is the length of a new log run. An opening replays all of them, so they are
// short; and together about as long as the snapshot, so that a snapshot doubles the
// few bytes that a commit records. (One of more than eight times maxLogBytes, of a file
// of 64 GiB and more, adds more to them.)
func (p *Pager) logPages() int {
	n := max(3, int(p.record.free.Snapshot.Pages)/extension.MaxLogs)
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
	next.free = extension.FreeSet{}
	next.log, next.whole, next.known = nil, true, true
	if p.fitsInline(txn) {
		return nil
	}
	n, asBits := p.snapshotPages(p.unusedRuns(txn), txn.HighWater())
	if !p.hasRoom(int(n)) {
		next.known = false // and who opens the file scans it, until there is room
		next.whole = false
		return nil
	}
	start, err := txn.Allocate(n)
	next.snapshot, next.bits = page.Extent{Start: start, N: n}, asBits
	return err
}

// unusedRuns bounds the number of runs of free and pending pages after a transaction:
// the pages of a snapshot may come from within a run, and what it has freed is not
// among the unused ones yet.
func (p *Pager) unusedRuns(txn *space.Txn) uint64 {
	return p.space.UnusedRuns() + uint64(len(txn.Freed())) + 1
}

// fitsInline tells whether the whole set fits into half of the room for changes: then
// the extension itself takes it, and no page.
func (p *Pager) fitsInline(txn *space.Txn) bool {
	most := uint64(p.inlineRoom(0)/2) / extentBytes
	more := uint64(len(txn.Freed())) + 1 // see unusedRuns
	return more <= most && p.space.FewUnusedRuns(most-more)
}

// extentBytes is the most that an extent takes in a change.
const extentBytes = 2 * 7

// snapshotPages is how many pages a snapshot of so many runs may take, and whether it
// is one of bits, which is never longer than MaxSnapshot. The pages themselves may
// raise the high-water mark.
func (p *Pager) snapshotPages(runs uint64, highWater page.ID) (n uint64, asBits bool) {
	ps := uint64(p.pageSize)
	highWater += page.ID(2*extension.MaxSnapshot(highWater)/ps) + 2
	size := extension.MaxExtents(runs, highWater)
	if bits := extension.MaxSnapshot(highWater); size > bits {
		size, asBits = bits, true
	}
	return (size + ps - 1) / ps, asBits
}

// hasRoom tells whether the record may take n pages: on a full disk only if so many
// are free one after the other. (A commit that could have freed some failed
// because its record wanted 24.)
func (p *Pager) hasRoom(n int) bool {
	if !p.noRoom || plant.On(plant.RecordWantsRoom) {
		return true
	}
	_, ok := p.space.FindFree(uint64(n))
	return ok
}

// complete ends the recording of a transaction that is committed.
func (p *Pager) complete(next *recording) {
	free := &next.free
	free.Count = p.space.FreeCount() + p.space.PendingCount()
	if !next.whole {
		return
	}
	if next.snapshot.N == 0 {
		free.Inline = extension.AppendChange(nil, nil, slices.Collect(p.space.Unused()))
		return
	}
	b := make([]byte, 0, next.snapshot.N*uint64(p.pageSize))
	if next.bits {
		b = p.space.AppendUnusedBits(extension.AppendBitsSnapshot(b))
	} else {
		b = extension.AppendExtentsSnapshot(b, slices.Collect(p.space.Unused()))
	}
	free.Snapshot = extension.Run{
		Start: next.snapshot.Start, Pages: uint32(next.snapshot.N), Bytes: uint32(len(b)),
		Hash: next.hasher.Sum(extension.OfSnapshot, next.snapshot.Start, b),
	}
	pages := (len(b) + p.pageSize - 1) / p.pageSize
	next.write(next.snapshot.Start, b[:pages*p.pageSize])
}

// readRecord makes the free set of a state from what an extension says, and the
// record that goes on from there. Any error means that it is not to be believed.
func (p *Pager) readRecord(f *found) (*space.Space, error) {
	ext := f.free
	old, err := extension.NewHasher(ext.Key)
	if err != nil {
		return nil, err
	}
	rec := record{hasher: p.record.hasher, free: *ext.Free, known: p.record.hasher != nil}
	high := f.meta.HighWater
	load := space.Load(high)
	read := func(r *extension.Run, purpose extension.Purpose) ([]byte, error) {
		if uint64(r.Bytes) > p.recordLimit(purpose, high) {
			return nil, page.Corruptf(r.Start, "a record of free pages of %d bytes", r.Bytes)
		}
		b, err := p.readRun(*r, high)
		if err != nil {
			return nil, err
		}
		if old.Sum(purpose, r.Start, b) != r.Hash && !plant.On(plant.RunUnchecked) {
			return nil, page.Corruptf(r.Start, "the checksum of a record of free pages does not hold")
		}
		if rec.hasher != nil {
			r.Hash = rec.hasher.Sum(purpose, r.Start, b)
		}
		return b, nil
	}
	free := &rec.free
	free.Logs = slices.Clone(free.Logs)
	if free.Snapshot.Pages > 0 {
		b, err := read(&free.Snapshot, extension.OfSnapshot)
		if err == nil {
			err = extension.Snapshot(b, high, load.Put, load.PutBits)
		}
		if err != nil {
			return nil, err
		}
	}
	for i := range free.Logs {
		if rec.log, err = read(&free.Logs[i], extension.OfLog); err == nil {
			err = extension.Log(rec.log, p.pageSize, high, load.Take, load.Put)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := extension.Changes(free.Inline, high, load.Take, load.Put); err != nil {
		return nil, err
	}
	free.Inline = slices.Clone(free.Inline)
	sp := load.Space()
	if err := p.checkRecord(f, sp, &rec); err != nil {
		return nil, err
	}
	if plant.On(plant.RunGivenAway) {
		txn := sp.Begin(f.tx)
		for e := range rec.runs() {
			_ = txn.Free(e)
		}
		txn.Commit()
	}
	p.record = rec
	return sp, nil
}

// recordLimit is the most bytes that a run of records may have.
func (p *Pager) recordLimit(purpose extension.Purpose, high page.ID) uint64 {
	if purpose == extension.OfSnapshot {
		return extension.MaxSnapshot(high)
	}
	return uint64(maxLogBytes + maxChange + 4*p.pageSize) // runs and chunks are whole pages
}

// readRun reads what means something of a run, from the disk.
func (p *Pager) readRun(r extension.Run, high page.ID) ([]byte, error) {
	if err := r.Check(high, p.pageSize); err != nil {
		return nil, err
	}
	if err := p.dropPages(r.Extent()); err != nil {
		return nil, err
	}
	b := make([]byte, r.Bytes)
	if _, err := p.file.ReadAt(b, int64(r.Start)*int64(p.pageSize)); err != nil {
		return nil, p.wrap("read a record of free pages of", err)
	}
	return b, nil
}

// checkRecord tells whether the free set can be that of the state.
func (p *Pager) checkRecord(f *found, sp *space.Space, rec *record) error {
	if n := sp.FreeCount(); n != rec.free.Count {
		return fmt.Errorf("the record has %d free pages and says that there are %d", n, rec.free.Count)
	}
	if sp.IsUnused(f.meta.Root) && !plant.On(plant.RootUnchecked) {
		return page.Corruptf(f.meta.Root, "the root page is recorded as free")
	}
	lists := slices.Clone(f.free.Lists)
	if id := f.meta.Freelist; id != page.NoFreelist {
		if !slices.ContainsFunc(lists, func(e page.Extent) bool { return e.Start == id }) {
			return page.Corruptf(id, "the freelist page is not recorded as one")
		}
	}
	for e := range rec.runs() {
		lists = append(lists, e)
	}
	for _, e := range lists {
		if e.N == 0 || e.Start < page.FirstDataPage || e.Start >= f.meta.HighWater || e.N > uint64(f.meta.HighWater-e.Start) || sp.AnyUnused(e) {
			return page.Corruptf(e.Start, "%d pages from here on are recorded as in use and as free, or do not exist", e.N)
		}
	}
	slices.SortFunc(lists, func(a, b page.Extent) int { return cmp.Compare(a.Start, b.Start) })
	for i := 1; i < len(lists); i++ {
		if lists[i].Start < lists[i-1].End() {
			return page.Corruptf(lists[i].Start, "two records of free pages, or freelists, lie upon each other")
		}
	}
	return nil
}
