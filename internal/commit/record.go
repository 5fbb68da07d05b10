package commit

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/space"
)

// Record is the free set as the extension of the newest meta records it: a
// snapshot, log runs, and inline changes (docs/format.md). Each commit's change is
// a few bytes in a meta page that is written anyway. When the inline room is
// full its changes move to a page of a log run; when there are as many log runs
// as an extension names, a new snapshot replaces all. Runs are in use, in no
// tree, and freed and used again under the rules of tree pages; to bbolt they
// are free.
type Record struct {
	Free   extension.FreeSet
	Hasher *extension.Hasher // of runs, used with the lock held; nil: nothing is recorded
	Known  bool              // Free is the set: else the next commit records it
	log    []byte            // of the newest log run
}

// Runs are the page runs of the record.
func (r *Record) Runs() iter.Seq[page.Extent] {
	return func(yield func(page.Extent) bool) {
		if s := r.Free.Snapshot; s.Pages > 0 && !yield(s.Extent()) {
			return
		}
		for _, l := range r.Free.Logs {
			if !yield(l.Extent()) {
				return
			}
		}
	}
}

// Recording is the record as a commit leaves it.
type Recording struct {
	Record
	Pages []Piece // to be written with the commit's

	whole    bool // the set is recorded anew, once the transaction is committed
	snapshot page.Extent
	bits     bool // the snapshot is to be a bitmap
}

// Piece is pages to be written.
type Piece struct {
	ID    page.ID
	Bytes []byte
}

// Write has pages written with the commit's.
func (r *Recording) Write(id page.ID, bytes []byte) {
	r.Pages = append(r.Pages, Piece{id, bytes})
}

// Recorder records free pages. It is made for one commit.
type Recorder struct {
	Space    *space.Space
	PageSize int
	NoRoom   bool // the disk was full
}

// Bounds on log runs, in bytes and in runs of an extension: room for the commits
// of a while, and not much of a small file.
const (
	maxLogBytes = 256 << 10
	maxChange   = 1 << 20 // a longer one is recorded as a snapshot
	minInline   = 64
)

// MaxPages bounds the pages of the record as a transaction will leave cur, which
// may raise the high-water mark to highWater before.
func (c Recorder) MaxPages(cur *Record, highWater page.ID) (n uint64) {
	for e := range cur.Runs() {
		n += e.N
	}
	snapshot, _ := c.snapshotPages(math.MaxUint32, highWater)
	return n + uint64(c.logPages(cur)) + snapshot + 2
}

// Plan makes of next the recording, after cur, of a transaction that is complete but for the
// pages that the recording takes. Call Complete after txn.Commit. whole: the set is
// recorded anew; what is recorded already may name pages above a high-water mark that
// was lowered.
func (c Recorder) Plan(cur *Record, txn *space.Txn, next *Recording, whole bool) error {
	*next = Recording{Record: *cur}
	if cur.Hasher == nil || c.inlineRoom(0) < minInline {
		next.Hasher, next.Known = nil, false
		return nil
	}
	if !cur.Known || whole {
		return c.planWhole(txn, next)
	}
	// Records share memory: each appends after those before it, and what a
	// transaction appended that was aborted is written over.
	free, freed := &next.Free, txn.Freed()
	inline := extension.AppendChange(free.Inline, txn.Allocated(), freed)
	if len(inline) <= c.inlineRoom(len(free.Logs)) {
		free.Inline = inline
		return nil
	}
	if c.fitsInline(txn) {
		return c.planWhole(txn, next)
	}
	if ok, err := c.planLog(txn, next, len(inline)); ok || err != nil {
		return err
	}
	return c.planWhole(txn, next)
}

// inlineRoom is how many bytes of changes an extension takes: the rest is for what
// a flush has written.
func (c Recorder) inlineRoom(logs int) int {
	return extension.Room(c.PageSize, logs, extension.MaxLists) * 3 / 4
}

// planLog moves the inline changes and the transaction's, size bytes of them, to
// the log; false if there is no place for them.
func (c Recorder) planLog(txn *space.Txn, next *Recording, size int) (ok bool, err error) {
	free := &next.Free
	const more = 64 // bytes by which a run that is allocated makes the change longer
	if size+more > maxChange {
		return false, nil
	}
	n := extension.ChunkPages(size+more, c.PageSize)
	last := len(free.Logs) - 1
	if last < 0 || int(free.Logs[last].Pages)-len(next.log)/c.PageSize < n {
		if len(free.Logs) == extension.MaxLogs || c.inlineRoom(len(free.Logs)+1) < minInline {
			return false, nil
		}
		pages := max(n, c.logPages(&next.Record))
		for pages > n && !c.hasRoom(pages) {
			pages = max(n, pages/2)
		}
		if !c.hasRoom(pages) {
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
	records := extension.AppendChange(free.Inline, txn.Allocated(), txn.Freed())
	at := len(next.log)
	next.log = extension.AppendChunk(next.log, records, c.PageSize)
	l := &free.Logs[last]
	if len(next.log) > int(l.Pages)*c.PageSize {
		return false, fmt.Errorf("a log run of %d pages is too short for %d bytes", l.Pages, len(next.log))
	}
	l.Bytes = uint32(len(next.log))
	l.Hash = next.Hasher.Sum(extension.OfLog, l.Start, next.log)
	next.Write(l.Start+page.ID(at/c.PageSize), next.log[at:])
	free.Inline = nil
	return true, nil
}

// logPages is the length of a new log run. An opening replays all of them, so they are
// short; and together about as long as the snapshot, so that a snapshot doubles the
// few bytes that a commit records. (One of more than eight times maxLogBytes, of a file
// of 64 GiB and more, adds more to them.)
func (c Recorder) logPages(cur *Record) int {
	n := max(3, int(cur.Free.Snapshot.Pages)/extension.MaxLogs)
	return min(n, max(2, maxLogBytes/c.PageSize))
}

// planWhole gives up all runs, and takes pages for a snapshot unless the set is
// so small that it fits into the extension.
func (c Recorder) planWhole(txn *space.Txn, next *Recording) error {
	for e := range next.Runs() {
		if err := txn.Free(e); err != nil {
			return err
		}
	}
	next.Free = extension.FreeSet{}
	next.log, next.whole, next.Known = nil, true, true
	if c.fitsInline(txn) {
		return nil
	}
	n, asBits := c.snapshotPages(c.unusedRuns(txn), txn.HighWater())
	if !c.hasRoom(int(n)) {
		next.Known = false // and who opens the file scans it, until there is room
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
func (c Recorder) unusedRuns(txn *space.Txn) uint64 {
	return c.Space.UnusedRuns() + uint64(len(txn.Freed())) + 1
}

// fitsInline tells whether the whole set fits into half of the room for changes: then
// the extension itself takes it, and no page.
func (c Recorder) fitsInline(txn *space.Txn) bool {
	most := uint64(c.inlineRoom(0)/2) / extentBytes
	more := uint64(len(txn.Freed())) + 1 // see unusedRuns
	return more <= most && c.Space.FewUnusedRuns(most-more)
}

// extentBytes is the most that an extent takes in a change.
const extentBytes = 2 * 7

// snapshotPages is how many pages a snapshot of so many runs may take, and whether it
// is one of bits, which is never longer than MaxSnapshot. The pages themselves may
// raise the high-water mark.
func (c Recorder) snapshotPages(runs uint64, highWater page.ID) (n uint64, asBits bool) {
	ps := uint64(c.PageSize)
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
func (c Recorder) hasRoom(n int) bool {
	if !c.NoRoom {
		return true
	}
	_, ok := c.Space.FindFree(uint64(n))
	return ok
}

// Complete ends the recording of a transaction that is committed.
func (c Recorder) Complete(next *Recording) {
	free := &next.Free
	free.Count = c.Space.FreeCount() + c.Space.PendingCount()
	if !next.whole {
		return
	}
	if next.snapshot.N == 0 {
		free.Inline = extension.AppendChange(nil, nil, slices.Collect(c.Space.Unused()))
		return
	}
	b := make([]byte, 0, next.snapshot.N*uint64(c.PageSize))
	if next.bits {
		b = c.Space.AppendUnusedBits(extension.AppendBitsSnapshot(b))
	} else {
		b = extension.AppendExtentsSnapshot(b, slices.Collect(c.Space.Unused()))
	}
	free.Snapshot = extension.Run{
		Start: next.snapshot.Start, Pages: uint32(next.snapshot.N), Bytes: uint32(len(b)),
		Hash: next.Hasher.Sum(extension.OfSnapshot, next.snapshot.Start, b),
	}
	pages := (len(b) + c.PageSize - 1) / c.PageSize
	next.Write(next.snapshot.Start, b[:pages*c.PageSize])
}
