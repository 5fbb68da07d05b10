//go:build !windows

package vfs

func underWine() bool { return false }
