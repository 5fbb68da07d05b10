package share

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Reader is a reader in another process than the owner's, with a slot. It has one transaction at a
// time: a process that reads in several opens several. Its methods must not be called concurrently.
type Reader struct {
	View
	database Database
	nonce    uint64
	slot     int
	held     uint64 // what it has written to its slot
	order    atomic.Uint64
}

// Open takes a slot in the share of a database, whose open file is given: another one than the
// owner's, open for reading at least. Errors wrap
// ErrNoOwner, ErrForeign, ErrNoSlot, and errors.ErrUnsupported.
func Open(dir string, id Identity, database Database) (*Reader, error) {
	return open(dir, id, database, nil)
}

func open(dir string, id Identity, database Database, step func(string)) (r *Reader, err error) {
	v, err := Attach(dir, id)
	if err == nil {
		v.step = step
		r = &Reader{View: *v, database: database}
		if err = r.take(); err != nil {
			err = errors.Join(err, v.release())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the database through its owner: %w", err)
	}
	return r, nil
}

// take notes the tenure and takes a slot.
func (r *Reader) take() (err error) {
	defer r.words.CatchFault(debug.SetPanicOnFault(true), r.gone(&err))
	r.nonce = r.words.Load(wordNonce)
	if locked, err := r.database.ByteLocked(tenureByte(r.nonce)); err != nil || !locked {
		return cmp.Or(err, fmt.Errorf("%s: %w", r.file.Name(), ErrNoOwner))
	}
	for r.slot = range Slots {
		ok, err := r.file.TryLockByte(slotByte(r.slot))
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		r.at("locked")
		// What a dead reader may have held; this one holds nothing yet.
		r.words.Store(slotWord(r.slot, slotHeld), none)
		r.words.Store(slotWord(r.slot, slotPID), uint64(os.Getpid()))
		r.words.Store(slotWord(r.slot, slotOpened), uint64(time.Now().UnixNano()))
		r.at("taken")
		r.words.Or(wordInUse+r.slot/64, 1<<(r.slot%64)) // before the slot says anything
		return nil
	}
	return fmt.Errorf("%s: %w", r.file.Name(), ErrNoSlot)
}

// Slot is the number of the reader's slot.
func (r *Reader) Slot() int { return r.slot }

// hold writes to the slot what it holds from now on, if it still has what this reader wrote last.
func (r *Reader) hold(v uint64) bool {
	if !r.words.CompareAndSwap(slotWord(r.slot, slotHeld), r.held, v) {
		return false
	}
	r.held = v
	return true
}

// Begin holds the newest state: until End, the owner reuses no page that it reaches. What is read is
// provisional until Confirm. There must be no transaction under way.
func (r *Reader) Begin() (s State, err error) {
	defer r.words.CatchFault(debug.SetPanicOnFault(true), r.gone(&err))
	r.words.Store(slotWord(r.slot, slotSince), uint64(time.Now().UnixNano()))
	s, err = r.state()
	var stopped error
	for range tries {
		if err != nil {
			return State{}, errors.Join(err, r.End())
		}
		r.at("read")
		if !r.hold(s.Tx + 1) {
			return State{}, ErrEnded
		}
		r.at("held")
		var newer State
		if newer, err = r.state(); err == nil && newer.Tx == s.Tx {
			if stopped = r.stopped(); stopped == nil {
				return newer, nil
			}
			r.at("stopped")
			time.Sleep(pause) // the owner publishes next what can be read
		}
		s = newer
	}
	return State{}, errors.Join(cmp.Or(stopped, ErrBusy), r.End())
}

// Confirm returns nil if all that was read since Begin is of its state. Errors wrap ErrOwnerGone,
// ErrEnded or ErrStopped: then what was read since the last Confirm is worth nothing, and the transaction
// must end. It takes one system call. Without a transaction it tells whether one can begin.
func (r *Reader) Confirm() (err error) {
	defer r.words.CatchFault(debug.SetPanicOnFault(true), r.gone(&err))
	r.order.Add(1) // the pages were read before: processors can delay loads past later ones, but not past this
	if r.words.Load(slotWord(r.slot, slotHeld)) != r.held {
		return ErrEnded
	}
	if err := r.stopped(); err != nil {
		return err
	}
	r.at("slot confirmed")
	locked, err := r.database.ByteLocked(tenureByte(r.nonce))
	if err != nil || !locked {
		return cmp.Or(err, ErrOwnerGone)
	}
	return nil
}

// stopped is ErrStopped if the state that is held was given up.
func (r *Reader) stopped() error {
	if r.held == none || r.words.Load(wordStopped) == 0 {
		return nil
	}
	if durable := r.words.Load(wordStoppedAt); r.held-1 > durable {
		return fmt.Errorf("transaction %d, %d is durable: %w", r.held-1, durable, ErrStopped)
	}
	return nil
}

// End lets the state go. It is no error if the reader was ended.
func (r *Reader) End() (err error) {
	defer r.words.CatchFault(debug.SetPanicOnFault(true), r.gone(&err))
	if r.held != none {
		r.hold(none) // or the slot stays ended until it is given back
	}
	return nil
}

// Close gives the slot back.
func (r *Reader) Close() error {
	err := r.leave()
	return errors.Join(err, r.release())
}

func (r *Reader) leave() (err error) {
	defer r.words.CatchFault(debug.SetPanicOnFault(true), r.gone(&err))
	r.vacate(r.slot)
	r.at("vacated")
	return r.file.UnlockByte(slotByte(r.slot)) // last: the next reader of the slot sets the bit again
}
