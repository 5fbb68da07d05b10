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

// Share is how many inodes go with so many bytes: the same part of all inodes as these are of all bytes; 0 where
// inodes are not counted. So who may write a part of the disk cannot take all files that it can have.
func (f FS) Share(bytes int64) int64 {
	switch {
	case f.Inodes <= 0 || f.Size <= 0 || bytes <= 0:
		return 0
	case bytes >= f.Size:
		return f.Inodes
	}
	high, low := bits.Mul64(uint64(f.Inodes), uint64(bytes))
	share, _ := bits.Div64(high, low, uint64(f.Size))
	return int64(share)
}

// Has tells whether so many bytes are free, and the inodes that go with them.
func (f FS) Has(bytes int64) bool { return f.Free >= bytes && f.FreeInodes >= f.Share(bytes) }

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
