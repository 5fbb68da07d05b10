//go:build !linux

package cli

// holders names the processes that hold a lock on the file, where the system
// tells. Here it does not.
func holders(string) string { return "" }

func processName(string) string { return "" }

func programOf(string) string { return "" }
