package zfs

import "testing"

// OnlyPath has programs looked for in PATH alone, for the time of a test.
func OnlyPath(t *testing.T) {
	old := sbin
	sbin = nil
	t.Cleanup(func() { sbin = old })
}
