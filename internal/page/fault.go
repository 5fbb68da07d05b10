package page

import (
	"errors"
	"runtime"
	"runtime/debug"
	"unsafe"

	"holdfast/internal/plant"
)

// ErrUnreadable is wrapped by the error of a page that the system could not
// deliver when its mapping was read.
var ErrUnreadable = errors.New("the page cannot be read: the file was shortened while it was open, or its disk failed")

// A mapped page that cannot be read is no error of a call but a fault of the
// processor, with which a Go program ends. debug.SetPanicOnFault turns it into
// a panic, for one goroutine; what recovers from it asks Fault whose it is:
//
//	defer image.CatchFault(debug.SetPanicOnFault(true), &err)

// CatchFault is to be deferred, with what debug.SetPanicOnFault(true) returned:
// it sets that back, and makes an error of a fault in the image's bytes. Other
// panics go on.
func (m *Image) CatchFault(before bool, err *error) {
	debug.SetPanicOnFault(before)
	if r := recover(); r != nil {
		fault := m.Fault(r)
		if fault == nil {
			panic(r)
		}
		*err = fault
	}
}

// Fault is the error of a fault in the image's bytes that was recovered as a
// panic; nil if it was another panic.
func (m *Image) Fault(recovered any) *CorruptError {
	fault, ok := recovered.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok || len(m.data) == 0 || plant.On(plant.FaultUncaught) {
		return nil
	}
	// The address is compared and never followed. The mapping does not move: it
	// is not the garbage collector's.
	start := uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))
	at := fault.Addr()
	if at < start || at-start >= uintptr(len(m.data)) {
		return nil
	}
	return &CorruptError{Page: ID(uint64(at-start) / m.pageSize), Reason: ErrUnreadable.Error(), Err: ErrUnreadable}
}
