//go:build !linux

package drivertest

import "testing"

// MainZFS is Main: the tests of ZFS run on Linux.
func MainZFS(m *testing.M) int { return Main(m) }
