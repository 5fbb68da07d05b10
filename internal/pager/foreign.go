package pager

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/epoch"
	"holdfast/internal/page"
	"holdfast/internal/share"
	"holdfast/internal/vfs"
)

// Snapshot is a held state.
type Snapshot struct {
	guard epoch.Guard[State] // of this process; or,
	own   *Foreign           // of another one, held by its owner for this one
}

// Value is the state. It must not be used after the end.
func (s Snapshot) Value() *State {
	if s.own != nil {
		return &s.own.State
	}
	return s.guard.Value()
}

// Foreign is the state as one of another process's database; nil if it is of this one.
func (s Snapshot) Foreign() *Foreign { return s.own }

// Release lets the state go. It must be called exactly once.
func (s Snapshot) Release() {
	if s.own != nil {
		s.own.release()
		return
	}
	s.guard.Release()
}

// End is Release, and tells whether what was read is of the state.
func (p *Pager) End(s Snapshot) (err error) {
	if s.own != nil {
		err = s.own.Confirm()
	} else {
		err = p.Lost(s.Value())
	}
	s.Release()
	return err
}

// confirmEach is how long what was read from the database of another process may not be confirmed.
const confirmEach = 50 * time.Millisecond

// Foreign is a state of a database that another process has open, held by its owner for this reader. What is read of it is
// provisional until Confirm. It is a tree.Reader, which confirms what it gives every confirmEach.
type Foreign struct {
	State
	p *Pager

	confirming sync.Mutex     // readers of one transaction, and its end
	r          *foreignReader // nil after the end: it is the next transaction's, or closed
	confirmed  atomic.Int64
	failed     atomic.Pointer[error]
}

// foreignReader is what one transaction after the other uses.
type foreignReader struct {
	*share.Reader
	// The seals of pages are remembered for one state only: another process writes the pages of the next one.
	verified *page.Verified
	of       page.TxID
}

// Confirm returns nil if all that was read is of the state. Otherwise nothing is that was read since the last Confirm, and
// nothing can be read any more; errors wrap those of the package share.
func (f *Foreign) Confirm() error {
	if err := f.failed.Load(); err != nil {
		return *err
	}
	f.confirming.Lock()
	defer f.confirming.Unlock()
	if err := f.failed.Load(); err != nil { // meanwhile
		return *err
	}
	if f.r == nil {
		return errForeignEnded
	}
	if err := f.r.Confirm(); err != nil {
		err = lostState(f.p.wrap("read", err))
		f.failed.Store(&err)
		return err
	}
	f.confirmed.Store(int64(time.Since(began)))
	return nil
}

// Newest is the newest transaction of the owner of the state, and the newest that is durable. It says nothing
// of whether the owner lives: Confirm does. It fails after the end.
func (f *Foreign) Newest() (newest, durable page.TxID, err error) {
	f.confirming.Lock()
	defer f.confirming.Unlock()
	if f.r == nil {
		return 0, 0, errForeignEnded
	}
	s, err := f.r.State()
	if err != nil {
		return 0, 0, f.p.wrap("read", err)
	}
	return page.TxID(s.Tx), page.TxID(s.Durable), nil
}

// Failed tells whether it was not confirmed.
func (f *Foreign) Failed() bool { return f.failed.Load() != nil }

// errForeignEnded is the error of a state that was given back.
var errForeignEnded = errors.New("the transaction has ended")

// lostState makes of the share's error of a state that did not become durable one that is ErrStopped too, as for the owner's readers.
func lostState(err error) error {
	if errors.Is(err, share.ErrStopped) {
		return stoppedForeign{err}
	}
	return err
}

type stoppedForeign struct{ error }

func (e stoppedForeign) Is(target error) bool { return target == ErrStopped }
func (e stoppedForeign) Unwrap() error        { return e.error }

// began is when the process began, about: durations are compared without a look at the wall's clock.
var began = time.Now()

// Live is Confirm if the last one was a while ago.
func (f *Foreign) Live() error {
	if f.failed.Load() == nil && int64(time.Since(began))-f.confirmed.Load() < int64(confirmEach) {
		return nil
	}
	return f.Confirm()
}

// Page returns branch or leaf page id.
func (f *Foreign) Page(id page.ID) (page.Page, error) {
	if err := f.Live(); err != nil {
		return page.Page{}, err
	}
	return f.State.Page(id)
}

// release gives the state back.
func (f *Foreign) release() {
	p := f.p
	f.confirming.Lock()
	r := f.r
	f.r = nil
	f.confirming.Unlock()
	if err := r.End(); err != nil || f.failed.Load() != nil {
		_ = r.Close() // its owner is gone, or has ended it
		r = nil
	}
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	f.gen.states--
	if err := f.gen.closeIfUnused(); err != nil {
		p.logf("unmap %s: %v", p.file.Name(), err)
	}
	p.foreign.left(r)
}

// foreign is a database that another process has open and shares.
type foreign struct {
	dir      string
	id       share.Identity
	database shareable

	owner  atomic.Uint64 // its process
	newest Finding       // of the newest transaction; by the pipeline's lock, as
	high   page.ID       // its high-water mark

	mu    sync.Mutex
	idle  []*foreignReader
	open  int64
	ever  uint64
	gone  chan struct{} // closed when the last one ends after Close
	close bool
}

// OpenForeign takes over file, a database that another process has open and shares in dir, for reading only. The file is closed if
// it fails. Errors wrap share.ErrNoOwner, share.ErrNoSlot, share.ErrForeign and errors.ErrUnsupported.
func OpenForeign(file vfs.File, dir string, opts Options) (*Pager, error) {
	opts.ReadOnly = true
	p := &Pager{file: file, opts: opts, writer: newWriterLock()}
	p.pipeline.Init(env{p})
	if err := p.openForeign(dir); err != nil {
		if p.gen != nil {
			_ = p.gen.mapping.Close()
		}
		_ = file.Close()
		return nil, err
	}
	return p, nil
}

func (p *Pager) openForeign(dir string) error {
	database, ok := p.file.(shareable)
	if !ok {
		return errors.ErrUnsupported
	}
	id, err := identity(database, 0)
	if err != nil {
		return err
	}
	p.foreign = &foreign{dir: dir, id: id, database: database, gone: make(chan struct{})}
	r, err := p.foreign.living(nil)
	if err != nil {
		return p.wrap("read", err)
	}
	p.foreign.idle = append(p.foreign.idle, r)
	p.pageSize = int(p.foreign.id.PageSize)
	s, err := p.beginForeign() // to see that it can be done
	if err != nil {
		return err
	}
	return p.End(s)
}

// beginForeign holds the newest state of the owner.
func (p *Pager) beginForeign() (Snapshot, error) {
	r, err := p.foreign.enter()
	if err != nil {
		return Snapshot{}, err
	}
	f := &Foreign{p: p}
	if r, err = p.foreign.living(r); err == nil {
		f.r = r
		if err = p.fill(f); err == nil {
			return Snapshot{own: f}, nil
		}
		err = cmp.Or(r.Confirm(), err)
		_ = r.Close()
	}
	p.foreign.left(nil)
	return Snapshot{}, lostState(p.wrap("read", err))
}

// living is r, if it can begin a transaction, or a new reader.
func (fo *foreign) living(r *foreignReader) (*foreignReader, error) {
	if r != nil {
		if r.Confirm() == nil {
			return r, nil
		}
		_ = r.Close() // there is a new owner, or none, or it was ended
	}
	reader, err := share.Open(fo.dir, fo.id, fo.database)
	if err != nil {
		return nil, err
	}
	pid, pageSize, err := reader.Owner()
	if err == nil && fo.id.PageSize == 0 && (bits.OnesCount64(pageSize) != 1 || pageSize < page.MinPageSize || pageSize > page.MaxPageSize) {
		err = fmt.Errorf("a page size of %d bytes: %w", pageSize, share.ErrForeign)
	}
	if err != nil {
		return nil, errors.Join(err, reader.Close())
	}
	if fo.id.PageSize == 0 { // that of the first; the others' is the same
		fo.id.PageSize = pageSize
	}
	fo.owner.Store(pid)
	return &foreignReader{Reader: reader}, nil
}

// fill begins a transaction of f's reader.
func (p *Pager) fill(f *Foreign) error {
	s, err := f.r.Begin()
	if err != nil {
		return err
	}
	size, err := p.file.Size()
	if err != nil {
		return err
	}
	f.State = State{Tx: page.TxID(s.Tx), Meta: page.Meta{
		PageSize: uint32(p.pageSize), Root: page.ID(s.Root), Sequence: s.Sequence, Freelist: page.NoFreelist,
		HighWater: page.ID(s.HighWater), Label: page.Label(s.Label),
	}}
	if err := f.Meta.Check(size); err != nil { // it comes from another process
		return err
	}
	f.r.remember(f.Tx, &p.opts, &p.counts, int(s.HighWater))
	f.confirmed.Store(int64(time.Since(began)))
	return p.mapForeign(f, s, size)
}

// remember prepares verifying the seals of a state's pages.
func (r *foreignReader) remember(tx page.TxID, opts *Options, counts *Counts, pages int) {
	switch {
	case opts.NoSeals:
		return
	case r.verified == nil:
		r.verified = page.NewVerified(pages, nil, &counts.SealsVerified)
	case r.of != tx:
		r.verified.Reset(pages)
	}
	r.of = tx
}

// mapForeign maps as much of the file as the state has.
func (p *Pager) mapForeign(f *Foreign, s share.State, size int64) error {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	p.fileSize = size
	if err := p.remap(int64(f.Meta.HighWater) * int64(p.pageSize)); err != nil {
		return err
	}
	p.gen.states++
	p.counts.FreePages.Store(int64(s.Free))
	p.foreign.newest = Finding{Tx: f.Tx, Label: f.Meta.Label, Slot: int(s.Slot & 1), Recorded: true, FreePages: s.Free}
	p.foreign.high = f.Meta.HighWater
	f.State.gen = p.gen
	f.State.image = page.NewImage(p.gen.mapping.Data(), p.pageSize, f.Meta.HighWater).Verifying(f.r.verified)
	return nil
}

// SharedBy is the number of the process that has the database open, as that process has it.
func (p *Pager) SharedBy() int { return int(p.foreign.owner.Load()) }

// enter takes a reader that no transaction uses; nil if there is none.
func (fo *foreign) enter() (*foreignReader, error) {
	fo.mu.Lock()
	defer fo.mu.Unlock()
	if fo.close {
		return nil, ErrDatabaseNotOpen
	}
	fo.open++
	fo.ever++
	if n := len(fo.idle); n > 0 {
		r := fo.idle[n-1]
		fo.idle = fo.idle[:n-1]
		return r, nil
	}
	return nil, nil
}

// maxIdleReaders is how many readers are kept for the next transactions, with their slots, of which there are few.
const maxIdleReaders = 1

// counts are as Pager.Readers.
func (fo *foreign) counts() (now int64, ever uint64) {
	fo.mu.Lock()
	defer fo.mu.Unlock()
	return fo.open, fo.ever
}

// left is called at the end of what enter began. r is for the next one; nil: it is closed.
func (fo *foreign) left(r *foreignReader) {
	fo.mu.Lock()
	defer fo.mu.Unlock()
	fo.open--
	switch {
	case r == nil:
	case fo.close || len(fo.idle) >= maxIdleReaders:
		_ = r.Close()
	default:
		fo.idle = append(fo.idle, r)
	}
	if fo.close && fo.open == 0 {
		close(fo.gone)
	}
}

// closeForeign waits for the transactions, and closes the file.
func (p *Pager) closeForeign() error {
	fo := p.foreign
	fo.mu.Lock()
	if fo.close {
		fo.mu.Unlock()
		return nil
	}
	fo.close = true
	var errs []error
	for _, r := range fo.idle {
		errs = append(errs, r.Close())
	}
	fo.idle = nil
	wait := fo.open > 0
	fo.mu.Unlock()
	if wait {
		<-fo.gone
	}
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	p.closed.Store(true)
	if p.gen != nil {
		errs = append(errs, p.gen.mapping.Close())
		p.gen = nil
	}
	return errors.Join(append(errs, p.file.Close())...)
}

// accountForeign is what the pages of a state are of which only the trees are known: those that they use, and the rest.
func (p *Pager) accountForeign(s *State) (Accounting, error) {
	var free []page.Extent
	err := func() (err error) {
		defer s.image.CatchFault(debug.SetPanicOnFault(true), &err)
		free, err = p.scan(s)
		return err
	}()
	if err != nil {
		return Accounting{}, fmt.Errorf("find the free pages: %w", err)
	}
	return Accounting{Free: free, Exact: true}, nil
}
