//go:build unix

package command

// RemoveStale removes a socket that nobody listens on.
func RemoveStale(path string) error { return removeStale(path) }
