package holdfast

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// A page of the mapping that the system cannot deliver is a fault of the
// processor in the goroutine that reads it (see page.ErrUnreadable). View and Update are
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
		_, _ = tx.rollback()
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
// it.
func (tx *Tx) caught(before bool, err *error) {
	debug.SetPanicOnFault(before)
	if recovered := recover(); recovered != nil {
		tx.recovered(recovered, err, true)
	}
}

// told is the error of a fault in the transaction's pages, which is not kept; nil if what was recovered is something else.
func (tx *Tx) told(recovered any) error {
	fault, written := tx.pageFault(recovered)
	if fault == nil || written && !faultInEngine() {
		return nil
	}
	return tx.named(fault)
}

// lost is caught of a call on the bucket that has no error to return.
func (b *Bucket) lost(before bool) {
	debug.SetPanicOnFault(before)
	if recovered := recover(); recovered != nil {
		b.tx.recovered(recovered, nil, b.keeps)
	}
}

// recovered is caught once the panic has been recovered. Without an err, looks is as in unsaid.
func (tx *Tx) recovered(recovered any, err *error, looks bool) {
	fault := tx.fault(recovered)
	if fault == nil {
		panic(recovered)
	}
	if err != nil {
		*err = fault
		return
	}
	tx.unsaid(fault, looks)
}

// fault is the error of a fault in the transaction's pages, which it keeps; nil
// if what was recovered is something else. A caller who writes to a value, whose
// memory can only be read, has a mistake in his program and not in his file.
func (tx *Tx) fault(recovered any) error {
	fault, written := tx.pageFault(recovered)
	if fault == nil || written && !faultInEngine() {
		return nil
	}
	return tx.keep(fault)
}

// pageFault is the error of a fault in the transaction's pages, nil if what was recovered is
// something else, and whether it may come from writing to them.
func (tx *Tx) pageFault(recovered any) (fault *CorruptError, written bool) {
	image := tx.state.Image()
	if fault = image.Fault(recovered); fault != nil {
		return fault, image.WriteFault(recovered)
	}
	if tx.w != nil {
		return tx.w.w.Fault(recovered)
	}
	return nil, false
}

// faultInEngine tells whether the function in which the fault happened is ours,
// or was called by us from the standard library. It is for a deferred function,
// which stands on the stack of the panic.
func faultInEngine() bool {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	in := false // in the stack, after the fault
	for {
		frame, more := frames.Next()
		switch name := frame.Function; {
		case name == "runtime.sigpanic":
			in = true
		case !in, isStandard(name):
		default:
			return strings.HasPrefix(name, "holdfast/internal/") || strings.HasPrefix(name, "holdfast.(")
		}
		if !more {
			return false
		}
	}
}

// isStandard knows the packages that read our bytes for us.
func isStandard(function string) bool {
	for _, pkg := range []string{"runtime.", "internal/", "bytes.", "encoding/binary.", "hash/crc32.", "slices.", "strings."} {
		if strings.HasPrefix(function, pkg) {
			return true
		}
	}
	return false
}
