package snapshot

import (
	"sync/atomic"
	"time"
)

// What tests put in place of the machine; nil: nothing.
var (
	testBootID     atomic.Pointer[string]             // the boot id
	testSyncError  atomic.Pointer[func() error]       // called before a flush; its error is the flush's
	testFlushDelay atomic.Pointer[time.Duration]      // the delay of SyncDeferred
	testUseGrain   atomic.Pointer[time.Duration]      // useGrain
	testPoint      atomic.Pointer[func(string) error] // called with how far a repair, or the making of a directory, has come; its error is theirs
)

func reached(step string) error {
	if hook := testPoint.Load(); hook != nil {
		return (*hook)(step)
	}
	return nil
}
