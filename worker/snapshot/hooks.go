package snapshot

import "time"

// What tests put in place of the machine.
var (
	testBootID     string        // not "": the boot id
	testSyncError  func() error  // not nil: called before a flush; its error is the flush's
	testFlushDelay time.Duration // not 0: the delay of SyncDeferred
)
