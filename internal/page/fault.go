package page

import (
	"errors"
	"runtime"
	"runtime/debug"
	"unsafe"
)

// ErrUnreadable is wrapped by the error of a page that the system could not
// deliver when its mapping was read.
var ErrUnreadable = errors.New("the page cannot be read: the file was shortened while it was open, or its disk failed")

// A mapped page that cannot be read is not an error of a call but a fault of the
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
	at, ok := m.faultAt(recovered)
	if !ok {
		return nil
	}
	return &CorruptError{Page: ID(at / m.pageSize), Reason: ErrUnreadable.Error(), Err: ErrUnreadable}
}

// WriteFault tells whether a fault in the image's bytes may come from writing to
// them: they can be read, and are not the zeros that a file has where it was
// shortened and made long again meanwhile. The caller knows whether another process may
// have written.
func (m *Image) WriteFault(recovered any) bool {
	at, ok := m.faultAt(recovered)
	return ok && m.hasContent(at)
}

// faultAt is where in the image a fault happened.
func (m *Image) faultAt(recovered any) (at uint64, ok bool) {
	fault, ok := recovered.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok || len(m.data) == 0 {
		return 0, false
	}
	return m.offset(fault.Addr())
}

// offset is where in the image an address lies. It is compared and never followed. The
// mapping does not move: it is not the garbage collector's.
func (m *Image) offset(address uintptr) (at uint64, ok bool) {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))
	if address < start || address-start >= uintptr(len(m.data)) {
		return 0, false
	}
	return uint64(address - start), true
}

// hasContent reads the system's smallest page around at; false if it cannot be
// read, or is zero.
func (m *Image) hasContent(at uint64) (has bool) {
	const unit = 4096
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			has = false
		}
	}()
	from := at / unit * unit
	for _, b := range m.data[from:min(from+unit, uint64(len(m.data)))] {
		if b != 0 {
			return true
		}
	}
	return false
}
