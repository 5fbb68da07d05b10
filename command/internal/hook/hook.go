// Package hook holds what tests of the command line change: sizes that a test could not reach, and a
// step that a test would not wait for. Nothing else writes to them.
package hook

import (
	"time"

	"holdfast"
)

var (
	// ProgressStep is how often progress is drawn; 0: at once, too.
	ProgressStep = 100 * time.Millisecond

	// OpenDatabase opens the databases that commands read.
	OpenDatabase = holdfast.Open

	// LongestValue is how many bytes a value can have.
	LongestValue int64 = holdfast.MaxValueSize

	// PutBatch is about how many bytes of a blob go into one transaction.
	PutBatch int64 = 32 << 20
)
