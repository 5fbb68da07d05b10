//go:build !unix

package command

// forward does nothing: there is no daemon on this system.
func (c *call) forward() (done bool, err error) { return false, nil }

// ask is not called.
func (c *call) ask(any, ...string) error { return nil }

// isServed is false.
func (c *call) isServed() bool { return false }
