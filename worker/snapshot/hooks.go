package snapshot

// What tests put in place of the machine.
var (
	testBootID    string       // not "": the boot id
	testSyncError func() error // not nil: called before a flush; its error is the flush's
)
