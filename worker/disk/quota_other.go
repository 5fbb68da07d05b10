//go:build !linux

package disk

import (
	"fmt"
	"runtime"
)

// HasQuotas is for Linux.
func HasQuotas(string) error { return fmt.Errorf("%w: %s", ErrNoQuota, runtime.GOOS) }

// Quota is for Linux.
type Quota struct{}

// LimitTrees is for Linux.
func LimitTrees(uint64, int64, int64, ...string) (*Quota, error) { return nil, HasQuotas("") }

// Used is for Linux.
func (*Quota) Used() (bytes, inodes int64, err error) { return 0, 0, HasQuotas("") }

// Lift is for Linux.
func (*Quota) Lift() error { return HasQuotas("") }
