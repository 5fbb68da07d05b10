//go:build !linux

package mountinfo

// Watched is for Linux.
type Watched struct{}

// Close does nothing.
func (*Watched) Close() {}
