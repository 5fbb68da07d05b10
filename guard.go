package holdfast

import "runtime/debug"

// A page of the mapping that the system cannot deliver is a fault of the
// processor in whoever reads it (see page.ErrUnreadable). View and Update are
// ready for one during the whole of their function; then the transaction is
// managed, and its calls need do nothing. Calls on other transactions are each
// ready for themselves: they defer caught.

// manage runs fn. A fault in it becomes the error. If it ends otherwise than by
// returning, the transaction ends.
func (tx *Tx) manage(fn func(*Tx) error) (err error) {
	returned := false
	before := debug.SetPanicOnFault(true)
	tx.managed = true
	defer func() {
		tx.managed = false
		debug.SetPanicOnFault(before)
		if returned {
			return
		}
		recovered := recover()
		err = tx.fault(recovered)
		tx.rollback()
		if recovered != nil && err == nil {
			panic(recovered)
		}
	}()
	err = fn(tx)
	returned = true
	return err
}

// caught is deferred, with debug.SetPanicOnFault(true), by the calls that read
// pages in a transaction that is not managed: it keeps a fault, and sets err to
// it unless err is nil.
func (tx *Tx) caught(before bool, err *error) {
	debug.SetPanicOnFault(before)
	recovered := recover()
	if recovered == nil {
		return
	}
	fault := tx.fault(recovered)
	if fault == nil {
		panic(recovered)
	}
	if err != nil {
		*err = fault
	}
}

// fault is the error of a fault in the transaction's pages, which it keeps; nil
// if what was recovered is something else.
func (tx *Tx) fault(recovered any) error {
	if fault := tx.state.Image().Fault(recovered); fault != nil {
		return tx.keep(fault)
	}
	return nil
}
