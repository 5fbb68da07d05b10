//go:build !linux

package drivertest

func (b *bench) special(string) {}
