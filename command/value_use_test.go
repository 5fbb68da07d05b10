package command

import "testing"

// LongestValue has values be of n bytes at most.
func LongestValue(t *testing.T, n int64) {
	before := longestValue
	longestValue = n
	t.Cleanup(func() { longestValue = before })
}
