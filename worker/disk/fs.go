package disk

import (
	"math"
	"math/bits"
)

// FS are the figures of a file system.
type FS struct {
	Size int64 // bytes
	Free int64 // bytes that an unprivileged user can still write

	// Inodes is how many files the file system can have, and FreeInodes how many more; both 0
	// where there is no such number.
	Inodes, FreeInodes int64

	Kind string // its type, such as "ext4"; "" where that is not known
}

// Measure tells of the file system that dir is on.
func Measure(dir string) (FS, error) { return measure(dir) }

// clamp is a product, or the largest number that there is; 0 if n is negative, as where more is used than
// an unprivileged user may.
func clamp[T int64 | uint64](n T, size uint64) int64 {
	if n <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(n), size)
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low)
}
