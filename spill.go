package holdfast

import (
	"runtime/debug"
)

// Spill writes what the transaction has changed to free pages of the file if it takes more than
// about limit bytes of memory, and gives that memory back: so a transaction of any size takes no
// more, if Spill is called now and then. (It costs nothing as long as there is less.) Without it
// a transaction has all that it changed in memory until it commits, but for what was put with
// Append. done says that it was written.
//
// All goes on as before: what was written early belongs to the transaction, and is durable
// and visible to others with the commit, or given up with it. Buckets and cursors stay as they are,
// and what Get and Cursor returned stays valid. Values that Put was given need not be kept any longer
// once Spill has returned true, unless the caller itself goes on using them.
//
// The price is that pages are written again when the transaction changes them again: more the more often
// Spill writes and the more the changes are scattered. They take room in the file until it ends if Get has
// found a value, or a cursor an element, that may lie in one of them. Else those that were replaced are
// used again. As to waiting, durability and flushes, the first Spill that writes is as the first Append.
//
// Errors: ErrTxNotWritable, ErrTxClosed. After any other, as of a full disk, ErrMaxSizeReached, or
// ErrStopped, the transaction can only be rolled back, as after an error of Append.
func (tx *Tx) Spill(limit int64) (done bool, err error) {
	if err := tx.usable(); err != nil {
		return false, err
	}
	if tx.w == nil {
		return false, ErrTxNotWritable
	}
	a := &tx.w.appending
	if tx.buckets.Edit.Held() <= limit+a.kept {
		return false, nil
	}
	if !tx.managed {
		defer tx.caught(debug.SetPanicOnFault(true), &err)
	}
	tx.change()
	if a.stream == nil {
		tx.beginAppending()
	}
	if err = tx.keep(tx.spillEarly()); err != nil {
		a.err = err
	}
	tx.changed()
	return err == nil, err
}

func (tx *Tx) spillEarly() error {
	a := &tx.w.appending
	free, err := tx.w.root.core.Spill(a.stream)
	if err != nil {
		return err
	}
	a.kept = tx.buckets.Edit.Held()
	if free && !a.lent {
		return a.stream.Forget()
	}
	return nil
}

// lend is called when the caller gets a key or a value.
func (tx *Tx) lend() {
	if tx.w != nil && tx.w.appending.stream != nil {
		tx.w.appending.lent = true
	}
}
