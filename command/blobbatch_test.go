package command

import (
	"testing"

	"holdfast/command/internal/hook"
)

// SmallPuts has put commit behind so many bytes.
func SmallPuts(t *testing.T, n int64) {
	before := hook.PutBatch
	hook.PutBatch = n
	t.Cleanup(func() { hook.PutBatch = before })
}
