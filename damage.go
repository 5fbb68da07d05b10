package holdfast

import (
	"errors"
	"fmt"
)

// What becomes of damage in the file. A call that can fail returns it. A call that has no
// error to return, such as Get or Cursor.Next, has the transaction keep it: View, Update,
// Batch, Commit and Rollback join it to what they return. In a reading transaction from Begin
// there may be no caller who looks, as the error of a deferred Rollback is dropped; there
// Options.OnDamage decides.

// OnDamage is what becomes of damage that is met by a call that has no error to return.
type OnDamage int

// The values of Options.OnDamage.
const (
	// DamagePanics: in a reading transaction from Begin the call panics with a
	// *CorruptError, which names the file, the page and the next step. bbolt panics, too,
	// on damage that it notices. It is the default.
	DamagePanics OnDamage = iota

	// DamageIsError: the call returns its zero value, or ends early, and the damage is
	// in Tx.Err and the error of Rollback. It is for programs that look there.
	DamageIsError
)

// String is the value's name, as HOLDFAST_DAMAGE has it.
func (d OnDamage) String() string {
	switch d {
	case DamagePanics:
		return "panic"
	case DamageIsError:
		return "error"
	}
	return fmt.Sprint(int(d))
}

// Err is the damage that the transaction has met in a call that has no error
// to return, such as Get; nil if there was none. View, Update, Batch, Commit and
// Rollback return it too, joined to their own error if there is one, and such a transaction
// cannot be committed. In a reading transaction from Begin such a call panics,
// unless the database was opened with DamageIsError: see Options.OnDamage.
//
// Err is also the error of an Append after which the transaction can only be rolled back.
// After the transaction has ended, when such calls answer nothing, it is ErrTxClosed, unless
// there was damage.
//
// In a database from OpenShared nil says that what was read so far counts.
func (tx *Tx) Err() error {
	if tx.foreign != nil && !tx.ended.Load() {
		_ = tx.keep(tx.foreign.Confirm())
	}
	if err := tx.damaged(); err != nil {
		return err
	}
	return tx.usable()
}

// damaged is the damage that the transaction has met.
func (tx *Tx) damaged() error {
	if p := tx.damage.Load(); p != nil {
		return *p
	}
	return nil
}

// keep remembers an error that reports damage, and returns it with the file's
// name. Other errors it returns as they are.
func (tx *Tx) keep(err error) error {
	if err != nil && tx.foreign != nil {
		return tx.keepForeign(err)
	}
	if err == nil || !isDamage(err) {
		return err
	}
	named := tx.db.corrupt(err)
	if tx.damage.CompareAndSwap(nil, &named) && tx.probing.Load() == 0 {
		tx.db.logger.Errorf("%v", named)
	}
	return named
}

// keepForeign is keep of a transaction on the database of another process.
func (tx *Tx) keepForeign(err error) error {
	err = tx.named(err)
	if isDamage(err) || tx.foreign.Failed() {
		tx.damage.CompareAndSwap(nil, &err)
	}
	return err
}

// confirmed is the error of a transaction on the database of another process whose reading counts no more.
func (tx *Tx) confirmed() error {
	if tx.foreign == nil {
		return nil
	}
	return tx.keep(tx.foreign.Confirm())
}

// named puts the file's name before an error that reports damage. What looks like damage to the database of another process
// is none if that is gone, and the next one writes.
func (tx *Tx) named(err error) error {
	if tx.foreign != nil && err != nil {
		if gone := tx.foreign.Confirm(); gone != nil {
			return gone
		}
	}
	return tx.db.corrupt(err)
}

// unsaid is called with what keep has returned by a call that has no error to return. looks
// says that the caller asks Err.
func (tx *Tx) unsaid(err error, looks bool) {
	if err == nil || looks || !tx.panics || tx.probing.Load() > 0 {
		return
	}
	var damage *CorruptError
	if errors.As(err, &damage) {
		named := *damage
		named.File = tx.db.path
		panic(&named)
	}
}

// joined is err with the damage that the transaction has met, and each of the two alone if
// there is no other, so that it can be compared with ==.
func (tx *Tx) joined(err error) error {
	damage := tx.damaged()
	switch {
	case damage == nil || err != nil && says(err, damage):
		return err
	case err == nil:
		return damage
	}
	return fmt.Errorf("%w (the transaction has met damage: %w)", err, damage)
}

// says tells whether err reports that damage already.
func says(err, damage error) bool {
	if errors.Is(err, damage) {
		return true
	}
	var got, want *CorruptError
	return errors.As(err, &got) && errors.As(damage, &want) && got.Page == want.Page && got.Reason == want.Reason
}

// KeepDamage returns b for a caller who asks Tx.Err after reading: damage that is met
// through the bucket returned, its cursors and the buckets opened from it is kept there,
// and is not a panic, whatever Options.OnDamage says.
func (b *Bucket) KeepDamage() *Bucket {
	if !b.tx.panics || b.keeps {
		return b
	}
	kept := &Bucket{FillPercent: b.FillPercent, tx: b.tx, keeps: true, core: b.core}
	kept.core.SetOuter(kept, &kept.FillPercent)
	return kept
}
