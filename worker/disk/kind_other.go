//go:build unix && !linux

package disk

import "golang.org/x/sys/unix"

func kindOf(*unix.Statfs_t) string { return "" }
