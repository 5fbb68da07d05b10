//go:build !linux

package drivertest

import "io/fs"

func attributes(string, fs.FileInfo) string { return "" }
func sharedInode(info fs.FileInfo) uint64   { return 0 }
