package command

import "testing"

// SmallPuts has put commit behind so many bytes.
func SmallPuts(t *testing.T, n int64) {
	before := putBatch
	putBatch = n
	t.Cleanup(func() { putBatch = before })
}
