package share

import (
	"errors"
	"os"
	"testing"

	"holdfast/internal/vfs"
)

// Each test here makes one order of steps in which a rule of the protocol matters.

func TestBegin(t *testing.T) {
	d := newDatabase(t)
	o, r := d.owner(t), d.reader(t)
	pins(t, o)
	want := State{Tx: 7, Root: 3, Sequence: 4, HighWater: 100, Free: 5, Slot: 1, Label: 9, Visible: true}
	o.Publish(want)
	if s := begin(t, r); s != want {
		t.Fatalf("state %+v, and not %+v", s, want)
	}
	pins(t, o, 7)
	o.Publish(State{Tx: 8})
	must(t, r.Confirm())
	pins(t, o, 7)
	must(t, r.End())
	pins(t, o)
	if s := begin(t, r); s.Tx != 8 {
		t.Fatalf("transaction %d, and not 8", s.Tx)
	}
	must(t, r.Close())
	pins(t, o)
	if o.words.Load(wordInUse)|o.words.Load(wordInUse+1) != 0 {
		t.Error("a slot is in use without a reader")
	}
}

// A reader that is slow between its look at the state and its slot holds a state whose pages the owner
// has reused, because it saw no slot.
func TestBeginReadsAgain(t *testing.T) {
	d := newDatabase(t)
	o, r := d.owner(t), d.reader(t)
	r.step = at("read", func() {
		o.Publish(State{Tx: 2})
		pins(t, o) // so what transaction 2 freed is reused
	})
	if s := begin(t, r); s.Tx != 2 {
		t.Fatalf("a reader reads the state of transaction %d, whose pages are reused", s.Tx)
	}
	pins(t, o, 2)
}

// A reader that began before the owner published, however shortly, is seen when it looks afterwards.
func TestPinsAfterPublish(t *testing.T) {
	d := newDatabase(t)
	o, r := d.owner(t), d.reader(t)
	o.step = at("publish", func() { begin(t, r) })
	o.Publish(State{Tx: 2})
	pins(t, o, 1)
	must(t, r.Confirm())
}

// From its first write to its slot on, a reader is seen: before it looks at the state again.
func TestBitBeforeSlot(t *testing.T) {
	d := newDatabase(t)
	o, r := d.owner(t), d.reader(t)
	r.step = at("held", func() { pins(t, o, 1) })
	begin(t, r)
	pins(t, o, 1)
}

func TestReap(t *testing.T) {
	d := newDatabase(t)
	o, living, idle, dead := d.owner(t), d.reader(t), d.reader(t), d.reader(t)
	begin(t, living)
	begin(t, dead)
	pins(t, o, 1, 1)
	n, err := o.Reap()
	if must(t, err); n != 0 {
		t.Fatalf("%d slots of living readers were cleared", n)
	}
	pins(t, o, 1, 1)
	must(t, living.Confirm())
	dies(t, dead)
	pins(t, o, 1, 1)
	n, err = o.Reap()
	if must(t, err); n != 1 {
		t.Fatalf("%d slots were cleared; one reader was dead", n)
	}
	pins(t, o, 1)
	begin(t, idle)
	pins(t, o, 1, 1)
	if again := d.reader(t); again.Slot() != 2 {
		t.Errorf("a reader takes slot %d; 2 is free", again.Slot())
	}
}

// The slot of a dead reader is cleared under its lock: the next reader may want it at the same time, and hold
// the same state.
func TestReapHasTheLock(t *testing.T) {
	d := newDatabase(t)
	o, dead := d.owner(t), d.reader(t)
	begin(t, dead)
	dies(t, dead)
	o.step = at("locked", func() { begin(t, d.reader(t)) })
	n, err := o.Reap()
	if must(t, err); n != 1 {
		t.Fatalf("%d slots were cleared; one reader was dead", n)
	}
	pins(t, o, 1)
}

// A reader that leaves clears its bit under its lock: the next reader of the slot sets it anew.
func TestCloseHasTheLock(t *testing.T) {
	d := newDatabase(t)
	o, leaves := d.owner(t), d.reader(t)
	leaves.step = at("vacated", func() { begin(t, d.reader(t)) })
	must(t, leaves.Close())
	pins(t, o, 1)
}

func TestEndReader(t *testing.T) {
	d := newDatabase(t)
	o, r, other := d.owner(t), d.reader(t), d.reader(t)
	begin(t, r)
	begin(t, other)
	ends(t, &other.view, r) // any process that may write the share can
	pins(t, o, 1)
	wants(t, "Confirm", r.Confirm(), ErrEnded)
	must(t, r.End())
	_, err := r.Begin()
	wants(t, "Begin", err, ErrEnded)
	wants(t, "Confirm again", r.Confirm(), ErrEnded)
	pins(t, o, 1)
	must(t, other.Confirm())
	list, err := o.Readers()
	must(t, err)
	if len(list) != 2 || !list[0].Ended || list[0].Holds || !list[1].Holds || list[1].Tx != 1 || list[1].PID != uint64(os.Getpid()) {
		t.Errorf("readers: %+v", list)
	}
	must(t, r.Close())
	again := d.reader(t)
	if again.Slot() != r.Slot() {
		t.Errorf("slot %d, though %d is free", again.Slot(), r.Slot())
	}
	begin(t, again)
	must(t, again.Confirm())
	// The one that has left is not there any more, nor is one in a slot that is free.
	for _, gone := range []ReaderInfo{list[0], {Slot: 50}} {
		if did, err := o.EndReader(gone); did || err != nil {
			t.Errorf("%+v was ended: %t, %v", gone, did, err)
		}
	}
	must(t, again.Confirm())
	for _, slot := range []int{-1, Slots} {
		if _, err := o.EndReader(ReaderInfo{Slot: slot}); err == nil {
			t.Errorf("there is no slot %d", slot)
		}
	}
	n, err := o.Reap()
	if must(t, err); n != 0 {
		t.Errorf("%d slots cleared", n)
	}
}

// A reader that is ended while it begins ends.
func TestEndReaderInBegin(t *testing.T) {
	d := newDatabase(t)
	o, r := d.owner(t), d.reader(t)
	r.step = at("read", func() { ends(t, &o.view, r) })
	_, err := r.Begin()
	wants(t, "Begin", err, ErrEnded)
	pins(t, o)
}

// A reader was ended in the place of another one, which had left after the look at the slot. One that only goes on is ended where it is.
func TestEndReaderOfNoOther(t *testing.T) {
	d := newDatabase(t)
	o, leaves := d.owner(t), d.reader(t)
	begin(t, leaves)
	list, err := o.Readers()
	must(t, err)
	var next *Reader
	o.step = at("end", func() {
		must(t, leaves.Close())
		next = d.reader(t)
		o.Publish(State{Tx: 2})
		begin(t, next)
	})
	did, err := o.EndReader(list[0])
	if must(t, err); did || next.Slot() != list[0].Slot {
		t.Fatalf("ended: %t, in slot %d of %d", did, list[0].Slot, next.Slot())
	}
	must(t, next.Confirm())
	if list, err = o.Readers(); err != nil || len(list) != 1 {
		t.Fatalf("%+v (%v)", list, err)
	}
	o.step = at("end", func() { must(t, next.End()) })
	if did, err = o.EndReader(list[0]); err != nil || !did {
		t.Fatalf("ended: %t, %v", did, err)
	}
	wants(t, "Confirm", next.Confirm(), ErrEnded)
	// One that never holds the same twice is not waited for.
	restless := d.reader(t)
	if list, err = o.Readers(); err != nil || len(list) != 2 {
		t.Fatalf("%+v (%v)", list, err)
	}
	o.step = func(step string) {
		if step == "end" && !restless.hold(restless.held^1) {
			t.Error("ended before its time")
		}
	}
	if did, err = o.EndReader(list[1]); err != nil || !did {
		t.Fatalf("ended: %t, %v", did, err)
	}
	wants(t, "Confirm", restless.Confirm(), ErrEnded)
}

// A tenure ends with Close of the owner, with the next owner too, though the database's file stays open.
func TestTenure(t *testing.T) {
	d := newDatabase(t)
	o, r := d.owner(t), d.reader(t)
	begin(t, r)
	must(t, o.Close())
	wants(t, "Confirm after Close", r.Confirm(), ErrOwnerGone)
	_, err := Open(d.dir, d.id, d.opened(t, os.O_RDONLY))
	wants(t, "Open without an owner", err, ErrNoOwner)
	next := d.owner(t)
	wants(t, "Confirm in another tenure", r.Confirm(), ErrOwnerGone)
	pins(t, next)
	must(t, r.Close())
	again := d.reader(t)
	begin(t, again)
	must(t, again.Confirm())
	pins(t, next, 1)
}

// The tenure has ended before the share is taken away or unlocked.
func TestCloseOrder(t *testing.T) {
	d := newDatabase(t)
	o, r := d.owner(t), d.reader(t)
	begin(t, r)
	o.step = at("tenure ended", func() { wants(t, "Confirm", r.Confirm(), ErrOwnerGone) })
	must(t, o.Close())
}

func TestStop(t *testing.T) {
	d := newDatabase(t)
	o, old, newer, late := d.owner(t), d.reader(t), d.reader(t), d.reader(t)
	begin(t, old)
	o.Publish(State{Tx: 5, Visible: true})
	begin(t, newer)
	o.Stop(3)
	impatient(t)
	must(t, old.Confirm())
	wants(t, "Confirm of what was visible", newer.Confirm(), ErrStopped)
	_, err := late.Begin()
	wants(t, "Begin of what was visible", err, ErrStopped)
	pins(t, o, 1, 5)
	o.Publish(State{Tx: 3})
	if s := begin(t, late); s.Tx != 3 {
		t.Errorf("transaction %d, and not 3", s.Tx)
	}
	must(t, late.Confirm())
	must(t, newer.End())
	must(t, newer.Confirm())
}

// A reader that began between Stop and the state that is to be read next got an error, as if it had read what was given up.
func TestBeginWhileStopping(t *testing.T) {
	d := newDatabase(t)
	o, r := d.owner(t), d.reader(t)
	o.Publish(State{Tx: 5, Visible: true})
	o.Stop(3)
	r.step = at("stopped", func() { o.Publish(State{Tx: 3}) })
	if s := begin(t, r); s.Tx != 3 {
		t.Errorf("transaction %d, and not 3", s.Tx)
	}
	must(t, r.Confirm())
	pins(t, o, 3)
}

func TestSlotsFull(t *testing.T) {
	d := newDatabase(t)
	o := d.owner(t)
	var all []*Reader
	want := make([]uint64, Slots)
	for i := range Slots {
		all = append(all, d.reader(t))
		begin(t, all[i])
		want[i] = 1
	}
	pins(t, o, want...)
	file := d.opened(t, os.O_RDONLY)
	_, err := Open(d.dir, d.id, file)
	wants(t, "one more", err, ErrNoSlot)
	must(t, all[100].Close())
	dies(t, all[101])
	for _, slot := range []int{100, 101} { // the lock of a dead reader is gone, which is enough
		if r := d.reader(t); r.Slot() != slot {
			t.Errorf("slot %d, and not %d", r.Slot(), slot)
		}
	}
	pins(t, o, want[2:]...)
	_, err = Open(d.dir, d.id, file)
	wants(t, "one more", err, ErrNoSlot)
}

// A state is read whole or not at all, wherever the owner is in the middle of it.
func TestStateIsWhole(t *testing.T) {
	impatient(t)
	d := newDatabase(t)
	o, r := d.owner(t), d.reader(t)
	o.step = func(step string) {
		if _, err := r.state(); step == "field" && !errors.Is(err, ErrBusy) {
			t.Fatalf("a state is read while it is written (%v)", err)
		}
	}
	o.Publish(State{Tx: 2, Root: 2, Label: 2})
	o.step = nil
	for field := range stateFields { // the owner is done before the reader has read this one
		n := 0
		r.step = func(step string) {
			if n++; step == "field" && n == field+1 {
				tx := uint64(field) + 3
				o.Publish(State{Tx: tx, Root: tx, Label: tx})
			}
		}
		s, err := r.state()
		if must(t, err); s.Tx != s.Root || s.Tx != s.Label {
			t.Fatalf("a state of two: %+v", s)
		}
	}
}

// counted counts the unlocking of the tenure.
type counted struct {
	*vfs.OSFile
	unlock func()
}

func (c counted) UnlockByte(off int64) error {
	c.unlock()
	return c.OSFile.UnlockByte(off)
}

// Whoever may write the share can shorten it. The owner ends its tenure, and then no slot counts.
func TestShortened(t *testing.T) {
	calls := map[string]func(*Owner){
		"Publish":         func(o *Owner) { o.Publish(State{Tx: 2}) },
		"Pins":            func(o *Owner) { _, _ = o.Pins(nil) },
		"PublishThenPins": func(o *Owner) { _, _ = o.PublishThenPins(State{Tx: 2}, nil) },
		"Reap":            func(o *Owner) { _, _ = o.Reap() },
		"Stop":            func(o *Owner) { o.Stop(1) },
		"Figures":         func(o *Owner) { _ = o.Figures([]byte("{}")) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			var o *Owner
			warned, unlocked := 0, 0
			file := counted{d.opened(t, os.O_RDWR), func() {
				if unlocked++; o.off.Load() && unlocked == 1 {
					t.Error("slots do not count any more, and the tenure lasts")
				}
			}}
			o, err := Create(d.dir, d.id, file, State{Tx: 1}, Options{Warn: func(error) { warned++ }})
			must(t, err)
			r := d.reader(t)
			begin(t, r)
			must(t, r.Confirm())
			must(t, os.Truncate(d.share(), 0))
			call(o)
			if warned != 1 || unlocked != 1 {
				t.Fatalf("%d warnings, and the tenure was ended %d times", warned, unlocked)
			}
			pins(t, o)
			wants(t, "Confirm", r.Confirm(), ErrOwnerGone)
			_, err = r.Begin()
			wants(t, "Begin", err, ErrOwnerGone)
			must(t, os.Truncate(d.share(), fileSize)) // it is zero now
			wants(t, "Confirm of what is long again", r.Confirm(), ErrEnded)
			_ = r.Close()
			for _, again := range calls {
				again(o)
			}
			pins(t, o)
			if must(t, o.Close()); warned != 1 {
				t.Errorf("%d warnings", warned)
			}
		})
	}
}

// Nothing is reused if the tenure cannot be ended.
func TestShortenedAndStuck(t *testing.T) {
	d := newDatabase(t)
	o, err := Create(d.dir, d.id, stuck{d.opened(t, os.O_RDWR)}, State{Tx: 1}, Options{})
	must(t, err)
	must(t, os.Truncate(d.share(), 0))
	for range 2 {
		_, err = o.Pins(nil)
		wants(t, "Pins", err, errStuck)
	}
	wants(t, "Close", o.Close(), errStuck)
}

type stuck struct{ *vfs.OSFile }

var errStuck = errors.New("the tenure cannot be ended")

func (stuck) UnlockByte(int64) error { return errStuck }
