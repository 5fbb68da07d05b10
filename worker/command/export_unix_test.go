//go:build unix

package command

// RemoveStale removes a socket without a listener.
func RemoveStale(path string) error { return removeStale(path) }
