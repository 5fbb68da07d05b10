package command

import (
	"testing"

	"holdfast/command/internal/hook"
)

// LongestValue has values be of n bytes at most.
func LongestValue(t *testing.T, n int64) {
	before := hook.LongestValue
	hook.LongestValue = n
	t.Cleanup(func() { hook.LongestValue = before })
}
