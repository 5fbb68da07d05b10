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
	testRepair     atomic.Pointer[func(string) error] // called with how far a repair has come; its error is the repair's
)

func reached(step string) error {
	if hook := testRepair.Load(); hook != nil {
		return (*hook)(step)
	}
	return nil
}
