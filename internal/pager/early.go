package pager

import (
	"cmp"
	"runtime"
)

// earlyHeld is how many bytes of complete pages a transaction holds before it writes
// them: few enough to be in a processor's cache still when they are written, and enough for
// few calls.
const earlyHeld = 512 << 10

// Early says how pages are written before their transaction commits. The zero value is for
// all but tests.
type Early struct {
	Held int64 // bytes of complete pages that a transaction holds before it writes them; 0: 512 KiB
	By   int8  // who writes: 1 a goroutine, -1 the caller; 0: a goroutine if GOMAXPROCS is more than 1
}

// EarlyAppender is an Appender that writes as p.Early says.
func (w *WriteTx) EarlyAppender(opts CommitOptions) *Stream {
	e := w.p.Early
	s := w.Appender(cmp.Or(e.Held, earlyHeld), opts)
	if e.By > 0 || e.By == 0 && runtime.GOMAXPROCS(0) > 1 {
		s.WriteBehind()
	}
	return s
}
