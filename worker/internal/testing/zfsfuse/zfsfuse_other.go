//go:build !linux

package zfsfuse

import (
	"testing"

	"holdfast/worker/mount"
	"holdfast/worker/snapshot/drivertest"
)

// RunAsProgram does nothing: the stand-in is for Linux.
func RunAsProgram() {}

// Main is drivertest.Main.
func Main(m *testing.M) int { return drivertest.Main(m) }

// Mounters returns none.
func Mounters() map[string]mount.Mounter { return nil }
