package share

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
)

// FuzzShareFile lets another process write anything to a share, and shorten it, before and while readers and the
// owner use it. Readers end with an error or are given a state; the owner goes on, what it publishes
// is there, and no slot counts once its reader is gone.
func FuzzShareFile(f *testing.F) {
	word := func(list ...uint64) (b []byte) {
		for i := 0; i < len(list); i += 2 {
			b = binary.LittleEndian.AppendUint16(b, uint16(list[i]))
			b = binary.LittleEndian.AppendUint64(b, list[i+1])
		}
		return b
	}
	f.Add(word(), word(), uint32(0))
	f.Add(word(wordMagic, 0), word(wordNonce, 5), uint32(0))
	f.Add(word(wordState, 1), word(wordState+1, ended), uint32(0))
	f.Add(word(wordState+1, ended-1, wordInUse, ended, wordInUse+1, ended), word(wordStopped, 1), uint32(0))
	f.Add(word(wordSlots, ended, wordSlots+slotWords, 3, wordInUse, 0), word(wordSlots, 77), uint32(0))
	f.Add(word(wordFigures+1, ended), word(wordSlots+slotWords, ended), uint32(fileSize-8))
	f.Add(word(), word(), uint32(4096))
	f.Add(word(), word(), uint32(1))
	// A word that the owner did not write again, as it had not changed, was what another process had made of it.
	f.Add(word(wordState+3, 77), word(), uint32(0))
	f.Fuzz(func(t *testing.T, first, second []byte, size uint32) {
		impatient(t)
		d := newDatabase(t)
		o := d.owner(t)
		file := d.opened(t, os.O_RDONLY)
		living := d.reader(t)
		begin(t, living)
		known(t, scribble(d, first))
		r, err := Open(d.dir, d.id, file)
		known(t, err)
		if err == nil {
			_, err = r.Begin()
			known(t, err)
		}
		known(t, scribble(d, second))
		if size%fileSize != 0 {
			known(t, os.Truncate(d.share(), int64(size%fileSize)))
		}
		ownerOf(t, o, living.Slot())
		if r != nil {
			_, err = r.Readers()
			known(t, errors.Join(err, r.Confirm(), r.End(), endsAny(&r.view, int(size%Slots))))
			_, err = r.Figures()
			known(t, errors.Join(err, r.Close()))
		}
		_, err = List(d.dir)
		known(t, err)
		known(t, living.Confirm())
		known(t, living.Close())
		leavesNothing(t, o)
	})
}

// scribble writes words to the share: two bytes each say where, and eight what.
func scribble(d *database, list []byte) error {
	f, err := os.OpenFile(d.share(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for ; len(list) >= 10; list = list[10:] {
		at := int64(binary.LittleEndian.Uint16(list)) % fileWords * 8
		if _, err := f.WriteAt(list[2:10], at); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// endsAny ends the reader in a slot, whatever it says of itself.
func endsAny(v *view, slot int) error {
	list, err := v.Readers()
	for _, r := range list {
		if r.Slot == slot {
			_, failed := v.EndReader(r)
			err = errors.Join(err, failed)
		}
	}
	return err
}

// ownerOf does what an owner does.
func ownerOf(t *testing.T, o *Owner, slot int) {
	held, err := o.Pins(nil)
	if must(t, err); len(held) > Slots {
		t.Fatalf("%d slots hold something", len(held))
	}
	o.Publish(State{Tx: 2})
	_, err = o.Reap()
	must(t, err)
	_, err = o.Readers()
	known(t, errors.Join(err, endsAny(&o.view, slot)))
	must(t, o.Figures([]byte("{}")))
	o.Stop(1)
}

// leavesNothing sees that all is as if nothing had been scribbled, when no reader is left.
func leavesNothing(t *testing.T, o *Owner) {
	_, err := o.Reap()
	must(t, err)
	pins(t, o)
	want := State{Tx: 5, Root: 6, Label: 7, Visible: true, Durable: 4}
	o.Publish(want)
	if !o.off.Load() {
		s, err := o.state()
		if must(t, err); s != want {
			t.Fatalf("%+v was published, and %+v is there", want, s)
		}
	}
	must(t, o.Close())
}

// known are the errors that a caller is told about.
func known(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for _, want := range []error{ErrNoOwner, ErrNoSlot, ErrOwnerGone, ErrEnded, ErrStopped, ErrBusy, ErrForeign} {
		if errors.Is(err, want) {
			return
		}
	}
	t.Fatal(err)
}
