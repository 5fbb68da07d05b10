package page

import (
	"runtime/debug"
	"unsafe"
)

// Size is the bytes of the state's pages.
func (m *Image) Size() uint64 { return uint64(m.limit) * m.pageSize }

// Offset is where in the image b lies; false if it does not.
func (m *Image) Offset(b []byte) (at uint64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	return m.offset(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// touchStride is how far apart the bytes are that Touch reads. With one fault Linux maps
// all that is cached of so much memory, aligned to as much.
const touchStride = 64 << 10

// Touch has the system map the bytes from from to to, which are of the state's pages, by reading one
// here and there, so that reading all of them does not fault on the way. Faults in a
// row take half the time of faults between which much else is done. A page that cannot be read is
// left to the caller that needs it.
func (m *Image) Touch(from, to uint64) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil && m.Fault(r) == nil {
			panic(r)
		}
	}()
	base := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.data))))
	for at := from; at < to; at += touchStride - (base+at)%touchStride {
		keep(m.data[at])
	}
}

// keep is there so that what it is given is not left out.
//
//go:noinline
func keep(byte) {}
