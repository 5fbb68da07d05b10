//go:build !linux

package drivertest

func loops(string) []string { return nil }
