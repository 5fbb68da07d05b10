package pager

import (
	"errors"
	"slices"
	"time"

	"holdfast/internal/epoch"
	"holdfast/internal/page"
	"holdfast/internal/share"
)

// sharing is what lets other processes read the database (internal/share). Its owner is asked once for each state that is
// replaced, and whenever states are swept:
//
//	owner.Publish(new) ── then owner.Pins: is the state named that is being replaced? ── then it is held in the epoch,
//	until Pins does not name it any more ── then states.Publish(new), and what the old one needed can be reused.
//
// So a reader of another process is one more reader of the epoch, and free pages, truncation and the oldest
// reader need not know of it. A slot that names a state which was neither current nor held when it was first seen is of
// a reader that will look once more, and begin again. All of it is guarded by the pipeline's lock.
type sharing struct {
	owner  *share.Owner // nil: the database is not shared
	held   []heldState
	pins   []uint64
	reaper *time.Timer
	armed  bool

	durable uint64 // the newest transaction that is known to be
}

// heldState is a state that slots name, held for them.
type heldState struct {
	tx    uint64
	guard epoch.Guard[State]
}

// reapEach is how often slots of dead readers are looked for while a state is held.
const reapEach = time.Second

// Share lets other processes read the database through a file in dir until Close. warn is told if that ends before. Errors
// wrap share.ErrOwned, and errors.ErrUnsupported where the system cannot.
func (p *Pager) Share(dir string, warn func(error)) error {
	if p.opts.ReadOnly {
		return ErrDatabaseReadOnly
	}
	database, ok := p.file.(shareable)
	if !ok {
		return errors.ErrUnsupported
	}
	id, err := identity(database, p.pageSize)
	if err != nil {
		return err
	}
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	if p.closed.Load() || p.states.Current() == nil {
		return ErrDatabaseNotOpen
	}
	p.shared.owner, err = share.Create(dir, id, database, p.shareState(p.states.Current()), share.Options{Like: database, Warn: func(err error) {
		p.byTimer.Add(1) // the caller of Warn has the lock
		go func() {
			defer p.byTimer.Done()
			warn(err) // which may use the database
		}()
	}})
	return err
}

// shareable is a file of the operating system.
type shareable interface {
	share.Database
	share.Access
	Inode() (device, number uint64, err error)
}

func identity(file shareable, pageSize int) (id share.Identity, err error) {
	id.PageSize = uint64(pageSize)
	id.Dev, id.Ino, err = file.Inode()
	return id, err
}

// shareState is what readers in other processes are told of a state.
func (p *Pager) shareState(s *State) share.State {
	t := share.State{
		Tx: uint64(s.Tx), Root: uint64(s.Meta.Root), Sequence: s.Meta.Sequence, HighWater: uint64(s.Meta.HighWater),
		Label: uint64(s.Meta.Label), Visible: p.visible != nil || p.unsynced > 0,
	}
	if p.unsynced == 0 {
		p.shared.durable = uint64(p.durable.Tx)
	}
	t.Durable = p.shared.durable
	if p.space != nil {
		t.Free = p.space.FreeCount() + p.space.PendingCount()
	}
	if slot, err := p.slots.Best(); err == nil {
		t.Slot = uint64(slot)
	}
	return t
}

// publish makes s current, for readers of this process and of others. The caller holds the pipeline's lock.
func (p *Pager) publish(s State) {
	if sh := &p.shared; sh.owner != nil {
		pins, err := sh.owner.PublishThenPins(p.shareState(&s), sh.pins[:0])
		p.holdForeign(p.states.Current(), pins, err)
	}
	p.gen.states++
	p.states.Publish(p.newState(s))
}

// holdForeign holds the current state, which is about to be replaced, if a slot names it, and lets go what none does. It is
// given what the share's owner says of the slots after the next state was published.
func (p *Pager) holdForeign(current *State, pins []uint64, err error) {
	p.letGoUnnamed(pins, err)
	if len(pins) == 0 {
		return
	}
	sh, tx := &p.shared, uint64(current.Tx)
	if slices.Contains(pins, tx) && !slices.ContainsFunc(sh.held, func(h heldState) bool { return h.tx == tx }) {
		if guard, ok := p.states.Acquire(); ok {
			sh.held = append(sh.held, heldState{tx, guard})
			p.reapLater()
		}
	}
}

// letGoUnnamed lets go what no slot names.
func (p *Pager) letGoUnnamed(pins []uint64, err error) {
	sh := &p.shared
	if sh.pins = pins; err != nil {
		_ = p.stop(err) // what they hold is not known, and no page may be reused
		return
	}
	if len(sh.held) == 0 {
		return
	}
	sh.held = slices.DeleteFunc(sh.held, func(h heldState) bool {
		gone := !slices.Contains(pins, h.tx)
		if gone {
			h.guard.Release()
		}
		return gone
	})
}

// letForeignGo lets go the states that no reader of another process holds any more. It is called before states are
// swept, by who holds the pipeline's lock.
func (p *Pager) letForeignGo() {
	if sh := &p.shared; len(sh.held) > 0 {
		p.letGoUnnamed(sh.owner.Pins(sh.pins[:0]))
	}
}

// reapLater clears the slots of dead readers in a while. The caller holds the pipeline's lock.
func (p *Pager) reapLater() {
	sh := &p.shared
	if sh.armed || p.closed.Load() {
		return
	}
	sh.armed = true
	if sh.reaper == nil {
		sh.reaper = time.AfterFunc(reapEach, p.reapReaders)
	} else {
		sh.reaper.Reset(reapEach)
	}
}

// reapReaders is called by the timer.
func (p *Pager) reapReaders() {
	p.pipeline.Lock()
	sh := &p.shared
	sh.armed = false
	if sh.owner == nil || p.closed.Load() {
		p.pipeline.Unlock()
		return
	}
	p.byTimer.Add(1)
	defer p.byTimer.Done()
	_, err := sh.owner.Reap()
	p.letForeignGo()
	p.states.Sweep()
	p.updateGauges()
	if len(sh.held) > 0 {
		p.reapLater()
	}
	p.pipeline.Unlock()
	if err != nil {
		p.logf("%s: look for dead readers in other processes: %v", p.file.Name(), err)
	}
}

// unshare ends sharing, and the states that are held for readers in other processes, which can confirm nothing more from
// then on. The caller holds the pipeline's lock, and the exclusive lock of the file.
func (p *Pager) unshare() error {
	sh := &p.shared
	if sh.owner == nil {
		return nil
	}
	if sh.reaper != nil {
		sh.reaper.Stop()
	}
	err := sh.owner.Close()
	sh.owner = nil
	for _, h := range sh.held {
		h.guard.Release()
	}
	sh.held = nil
	return err
}

// ShareFigures gives those who watch the database from other processes a JSON document. It does nothing if the database is
// not shared.
func (p *Pager) ShareFigures(document []byte) error {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	if p.shared.owner == nil {
		return nil
	}
	return p.shared.owner.Figures(document)
}

// ForeignReaders are the living readers in other processes.
func (p *Pager) ForeignReaders() ([]share.ReaderInfo, error) {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	if p.shared.owner == nil {
		return nil, nil
	}
	return p.shared.owner.Readers()
}

// tellDurable says so of the current state, or that another meta page has it now. The caller holds the pipeline's lock.
func (p *Pager) tellDurable() {
	if p.shared.owner != nil {
		p.shared.owner.Publish(p.shareState(p.states.Current()))
	}
}

// stopShare says that the durable state is the newest that can be believed. The caller publishes it then.
func (p *Pager) stopShare(durable page.TxID) {
	if p.shared.owner != nil {
		p.shared.owner.Stop(uint64(durable))
	}
}
