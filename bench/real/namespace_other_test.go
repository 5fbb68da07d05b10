//go:build !linux

package real

import "testing"

func runTests(m *testing.M) int { return m.Run() }
