// Package pager is an open database file: its mapping, its current state, its
// free pages, and how a transaction becomes durable. It knows nothing of keys.
//
// Readers take a state (a meta and a mapping) from an epoch and hold no lock.
// One writer at a time edits; Prepare ends the edit, and the next one begins on
// top of it; Finish makes it durable, together with whatever else is prepared
// (internal/commit, and publish.go). docs/design.md argues what a crash at any moment leaves.
//
// Locks, in the order in which they are taken:
//
//	writer    the writer lock, from BeginWrite to Prepare or Rollback
//	pipeline  its lock: all fields of Pager that change
//
// At most one goroutine at a time is the leader, which is not a lock: the leader may read and
// write the file without that of the pipeline.
package pager

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/commit"
	"holdfast/internal/epoch"
	"holdfast/internal/page"
	"holdfast/internal/space"
	"holdfast/internal/vfs"
)

// Errors that callers of bbolt compare with ==.
var (
	ErrDatabaseNotOpen    = errors.New("database not open")
	ErrDatabaseReadOnly   = errors.New("database is in read-only mode")
	ErrFreePagesNotLoaded = errors.New("free pages are not pre-loaded")
	ErrMaxSizeReached     = errors.New("database reached maximum size")
)

// ErrStopped is wrapped by the error of every write after a flush has failed, or
// after the file was shortened from outside: what the disk holds is not known any
// more, and only opening the file again finds out.
var ErrStopped = errors.New("writing has stopped because it is not known what the file holds; close the database and open it again")

// Options say how to open a file.
type Options struct {
	ReadOnly     bool
	NoCreate     bool          // of a file that is empty, or was not created to its end, make no database
	Timeout      time.Duration // for the lock; 0 waits for ever
	PageSize     int           // of a new file, in bytes; 0: the system's
	InitialMap   int64         // bytes to map at least
	MapFlags     int           // further flags for mmap
	ReadAhead    bool          // the system may read ahead of what is looked at
	Lock         bool          // lock the mapping in memory
	StrictCompat bool          // no trailing metas: bbolt finds the newest state after a crash
	// PlainDelay is how long after the last commit the newest state gets a plain meta,
	// for bbolt to find; 0: twice as long as commits are apart, from 50 ms to a second;
	// negative: not before Sync or Close.
	PlainDelay time.Duration
	// PeriodicDelay is how long a commit with Periodic may not be durable, and
	// PeriodicBytes how many bytes of pages may not be.
	PeriodicDelay time.Duration
	PeriodicBytes int64
	LoadFreeList  bool // also when read-only
	NoSeals       bool // neither write nor verify seals
	TimeWriters   bool // count Counts.Busy
	// Waits is called by a writer that finds the writer lock taken, and what it returns when the
	// writer has it. nil: not called.
	Waits func() (done func())
	// Scan visits all page runs that a state's tree uses, each once, and fails
	// on a damaged one. It is called when free pages are not recorded.
	Scan func(src *State, used func(page.Extent) error) error
	// KeysOnly tells whether the root bucket has keys and no bucket, and how many pages it
	// has then. nil: it is not asked.
	KeysOnly func(src *State) (pages uint64, only bool)
	// SettleOnly says that nothing is going to be committed: no meta page is written but that
	// which settles a state, and it does not say that the file is in use.
	SettleOnly bool
	// Top returns the damage of what every program meets first, if it is to be looked for: Open
	// fails with it then.
	Top func(src *State) error

	// Whole returns a fault of a state, if it has any. It is asked before the state of a copy is
	// believed that was made while a program wrote to the file. nil: it is not asked.
	Whole func(src *State, a Accounting) error
	// Log is told of what an operator may want to know. May be nil.
	Log func(format string, args ...any)
}

// State is the database as of one committed transaction. It is immutable.
type State struct {
	Tx   page.TxID
	Meta page.Meta // Label and Freelist are those of the slot it came from
	// Sum is that of the runs in its trees; not known of one that is prepared.
	Sum   page.Sum
	image page.Image
	gen   *generation
}

// Page returns branch or leaf page id.
func (s *State) Page(id page.ID) (page.Page, error) { return s.image.Page(id) }

// Image is the state's bytes.
func (s *State) Image() *page.Image { return &s.image }

// Pager is an open file. Methods may be called concurrently.
type Pager struct {
	Early Early // set before a transaction begins

	file     vfs.File
	opts     Options
	pageSize int
	states   *epoch.Epoch[State]

	writer writerLock

	pipeline    commit.Pipeline[*Prepared] // its lock guards what follows
	space       *space.Space
	slots       page.Slots
	images      [2][]byte      // of the meta pages what can be other than zero, as written last; the leader's
	inUse       [2]bool        // the slot's extension says that the file is in use; the leader's
	lists       [2]page.Extent // pages of the freelist that each slot names; N is 0 if it names none
	orphans     []page.Extent  // freelists that no slot names any more, to be freed by the next transaction
	record      commit.Record  // of the free pages, as of the newest transaction that is prepared
	recorded    commit.Record  // as the newest meta has it
	sum         page.Sum       // of the newest state that was written
	durable     State          // the newest that is durable, or will be before anything builds on that
	held        *page.TxID     // the state, pinned, of which the newest meta is, if that is trailing
	trailing    bool           // the newest durable meta
	random      [2]bool        // the slot holds a trailing meta of this opening, or one that it settled
	lostBase    *page.TxID     // a visible state that was lost, pinned until all that stood on it is undone; nil: none
	visible     *page.Meta     // that of the current state, if it is not durable, in the slot to be written next
	dirty       commit.Dirty   // pages of the state written last that are not in the durable one; the leader's, who changes it without the lock
	gen         *generation    // newest
	laneEnd     [2]page.ID     // where each lane ended
	last        [2]uint64      // pages that the last transaction allocated in each lane
	low         int            // see PlaceLow
	cutLater    bool           // Shrink found that the file cannot be cut while it is mapped
	cutFailed   error          // of the last attempt of a Shrink
	noRoom      bool           // the disk was full, and the file was not made longer since: see mayRise, recorder
	fileSize    int64
	editing     *WriteTx
	overlay     map[page.ID]*run // page runs that are prepared, and perhaps not in the file; see addToOverlay
	overlayPeak int              // the most that were in it since it was made
	aborted     []*Prepared      // whose use of space is still to be undone, oldest first
	ended       []*Prepared      // whose buffers are still to be taken back
	lost        atomic.Uint64    // see Lost: one more than the number of the newest state that is good
	draining    bool             // Close waits for the last readers
	unsynced    int64            // commits since the last that was flushed
	leaveList   bool             // see LeaveFreelist
	flusher     *time.Timer      // see flushLater
	byTimer     sync.WaitGroup   // functions of timers that write or log; joined before closed is set
	flushing    bool             // it runs
	plainTimer  *time.Timer      // see plainLater
	plainFailed bool             // there was no room for a plain meta; until the next commit it is not tried again
	armed       bool             // it runs
	lastWrite   time.Time
	pace        pace

	shared  sharing
	foreign *foreign // nil: the database is this process's own

	group  group // the leader's, and
	leader leader

	found     found // by opening
	unflushed bool  // what was found could not be flushed
	opened    atomic.Pointer[OpenPath]
	identity  uint32 // of the file; 0 if it is not known
	leaving   bool   // no meta page is to say any more that the file is in use
	stopped   atomic.Pointer[error]
	closed    atomic.Bool // set while the writer lock is held
	buffers   bufferPool
	counts    Counts
	marks     page.Marks
}

// Counts are running totals and gauges, for statistics.
type Counts struct {
	FreePages    atomic.Int64
	PendingPages atomic.Int64
	BytesWritten atomic.Int64
	Writes       atomic.Int64 // write calls
	Flushes      atomic.Int64
	Commits      atomic.Int64
	Groups       atomic.Int64 // in which they were written
	Group        atomic.Int64 // commits in the newest one

	SealsVerified atomic.Int64

	// Busy is nanoseconds in which writers waited for the writer lock, each of them, and held it, if that is counted. A
	// transaction counts for at most longTurn: one that is open for longer, such as those which etcd leaves open until
	// its next commit, is idle for most of it.
	Busy atomic.Int64
}

// OpenPath is how the free pages were found.
type OpenPath string

// See the names in the root package.
const (
	OpenedByRecord   OpenPath = "record"
	OpenedByFreelist OpenPath = "freelist"
	OpenedByScan     OpenPath = "scan"
)

// OpenPath tells how the free pages were found; "" if they were not needed.
func (p *Pager) OpenPath() OpenPath {
	if o := p.opened.Load(); o != nil {
		return *o
	}
	return ""
}

// Counts gives the pager's counters.
func (p *Pager) Counts() *Counts { return &p.counts }

// Name is the file's path.
func (p *Pager) Name() string { return p.file.Name() }

// PageSize is the size of a page in bytes.
func (p *Pager) PageSize() int { return p.pageSize }

// ReadOnly tells whether the file was opened for reading only.
func (p *Pager) ReadOnly() bool { return p.opts.ReadOnly }

// File is the file itself, for copying it.
func (p *Pager) File() vfs.File { return p.file }

// Begin holds the current state for a reader. No lock, no wait, no allocation.
func (p *Pager) Begin() (Snapshot, error) {
	if p.foreign != nil {
		return p.beginForeign()
	}
	g, ok := p.states.Acquire()
	if !ok {
		return Snapshot{}, ErrDatabaseNotOpen
	}
	return Snapshot{guard: g}, nil
}

// Lost is why state s must not be believed any more: it was visible and not durable
// when a flush failed, and what is read of it now may be what the disk has. nil: it
// is good.
func (p *Pager) Lost(s *State) error {
	if bad := p.lost.Load(); bad == 0 || uint64(s.Tx) < bad {
		return nil
	}
	return p.stoppedBy()
}

// Readers is the number of held snapshots and of snapshots ever held.
func (p *Pager) Readers() (now int64, ever uint64) {
	if p.foreign != nil {
		return p.foreign.counts()
	}
	return p.states.Counts()
}

// Data is the newest mapping, for those who want raw bytes. It is nil after Close.
func (p *Pager) Data() []byte {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	if p.gen == nil {
		return nil
	}
	return p.gen.mapping.Data()
}

// flushOpening flushes a file that is not open yet: there is no writer to stop.
func (p *Pager) flushOpening() error {
	p.counts.Flushes.Add(1)
	err := p.file.Sync()
	if err != nil {
		p.forget()
	}
	return err
}

// flushForReading flushes a file that is opened for reading. What an earlier process did
// to it may be in the page cache only: a reader who acts on it, and finds it gone after a
// power failure, has acted on what never was. Where the file cannot be flushed, as on a
// read-only file system, it is read all the same, and Finding says so.
func (p *Pager) flushForReading() {
	p.counts.Flushes.Add(1)
	err := p.file.Sync()
	if err == nil {
		return
	}
	p.unflushed = true
	if p.logf("flush %s, which is opened for reading: %v", p.file.Name(), err); !vfs.CannotFlush(err) {
		p.forget() // it failed: what the cache has the disk may not have
	}
}

// forget drops the file from the system's cache, of which nothing may be mapped
// any more: after a failed flush the cache shows what the disk does not have, and
// the next opening would build upon that.
func (p *Pager) forget() {
	size, err := p.file.Size()
	if err == nil {
		err = p.file.DropCache(0, size)
	}
	if err != nil {
		p.logf("drop %s from the system's cache: %v", p.file.Name(), err)
	}
}

// flush flushes the file, or says by what the writer was stopped. A failure
// stops it.
func (p *Pager) flush() error {
	if err := p.stoppedBy(); err != nil {
		return err // another flush would succeed and mean nothing
	}
	p.counts.Flushes.Add(1)
	if err := p.file.Sync(); err != nil {
		return p.stop(err)
	}
	return nil
}

func (p *Pager) logf(format string, args ...any) {
	if p.opts.Log != nil {
		p.opts.Log(format, args...)
	}
}

// Accounting is what a state's pages are, besides the tree: for checking.
type Accounting struct {
	Free     []page.Extent // free and pending, ascending
	Reserved []page.Extent // used, but not by a tree: freelist pages, records of free pages
	// Records are those of Reserved that hold records of free pages, and List is
	// the freelist page that says the same for bbolt; 0 if there is none.
	Records []page.Extent
	List    page.ID
	// Exact is false if a newer transaction has committed, whose freed pages
	// and not the state's own are listed.
	Exact bool
}

// Account tells what the pages of state s are, which the caller holds.
func (p *Pager) Account(s *State) (Accounting, error) {
	if p.foreign != nil {
		return p.accountForeign(s)
	}
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	if p.gen == nil { // not if Close waits for s
		return Accounting{}, ErrDatabaseNotOpen
	}
	if p.space == nil {
		return Accounting{}, ErrFreePagesNotLoaded
	}
	current := p.states.Current()
	if current == nil { // Close waits for s, and may have committed once more
		current = &p.durable
	}
	_, prepared := p.pipeline.Newest()
	busy := prepared || len(p.aborted) > 0 || p.lost.Load() != 0
	a := p.account()
	a.Exact = !busy && current.Tx == s.Tx
	return a, nil
}

// account tells what pages are used for now.
func (p *Pager) account() (a Accounting) {
	limit := p.space.HighWater()
	if p.editing != nil {
		limit = p.editing.base.Meta.HighWater // from there on is what it has risen by, and not taken yet
	}
	for e := range p.space.Unused() {
		if e.Start < limit {
			a.Free = append(a.Free, page.Extent{Start: e.Start, N: min(e.N, uint64(limit-e.Start))})
		}
	}
	if p.editing != nil { // what it has taken already is free to everybody else
		a.Free = append(a.Free, p.editing.space.Allocated()...)
		slices.SortFunc(a.Free, func(a, b page.Extent) int { return cmp.Compare(a.Start, b.Start) })
	}
	a.Records = slices.Collect(p.recorded.Runs())
	a.Reserved = append(p.listsInUse(nil), a.Records...)
	if best, err := p.slots.Best(); err == nil && p.visible == nil && p.recorded.Known && p.slots.Meta[best].Freelist != page.NoFreelist {
		a.List = p.slots.Meta[best].Freelist
	}
	return a
}

// listsInUse appends the freelist pages that are neither free nor in a tree.
func (p *Pager) listsInUse(lists []page.Extent) []page.Extent {
	for _, l := range p.lists {
		if l.N > 0 && !slices.Contains(lists, l) {
			lists = append(lists, l)
		}
	}
	for _, pr := range p.aborted { // whose use of space is not undone yet
		lists = append(lists, pr.orphans...)
	}
	return append(lists, p.orphans...)
}

// unlist is called when a slot was overwritten that may have named a freelist.
func (p *Pager) unlist(slot int) {
	l := p.lists[slot]
	p.lists[slot] = page.Extent{}
	if l.N > 0 && p.lists[1-slot] != l {
		p.orphans = append(p.orphans, l)
	}
}

// IsFree tells whether page id is free or pending.
func (p *Pager) IsFree(id page.ID) (bool, error) {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	if p.space == nil {
		return false, ErrFreePagesNotLoaded
	}
	return p.space.IsUnused(id), nil
}

// LoadFree makes sure that the free pages are known. Only a read-only database
// can lack them; s, which the caller holds, is its one state.
func (p *Pager) LoadFree(s *State) error {
	if p.foreign != nil { // see accountForeign
		return nil
	}
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	if p.space != nil {
		return nil
	}
	if p.loadRecord(); p.space == nil {
		if err := p.loadFree(s); err != nil {
			return err
		}
	}
	p.recorded = p.record
	p.space.Pin(s.Tx)
	return nil
}

func (p *Pager) updateGauges() {
	if p.space == nil {
		return
	}
	p.counts.FreePages.Store(int64(p.space.FreeCount()))
	p.counts.PendingPages.Store(int64(p.space.PendingCount()))
}

func (p *Pager) wrap(doing string, err error) error {
	return fmt.Errorf("%s %s: %w", doing, p.file.Name(), err)
}
