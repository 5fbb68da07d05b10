//go:build !linux

package suite

import "os"

func fdatasync(f *os.File) error { return f.Sync() }
