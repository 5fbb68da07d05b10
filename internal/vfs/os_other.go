//go:build !linux

package vfs

// dropCache does nothing: the system has no call for it.
func (f *OSFile) dropCache(off, n int64) error { return nil }
