//go:build !unix

package command

// forward does nothing: there is no daemon on this system.
func (c *call) forward() (done bool, err error) { return false, nil }

// isServed is false.
func (c *call) isServed() bool { return false }
