// Package size reads and writes sizes as people do, such as 64KiB, 10GB or 1.5 GiB. Flags of both commands and the
// policies of package worker/prune are read with it, so they take the same.
package size

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// ErrSyntax says that a text is not a size, and how one is written.
var ErrSyntax = errors.New("not a size: give a number of bytes, or one with a unit such as 64KiB or 1GiB")

// Parse reads a size: a number of bytes, or a number with a unit: KiB, MiB, GiB, of 1024, or kB, MB, GB, of 1000.
// A whole number is read exactly, and another is rounded down to a byte.
func Parse(s string) (int64, error) {
	unit := strings.TrimLeft(s, "0123456789")
	number, err := strconv.ParseInt(s[:len(s)-len(unit)], 10, 64)
	if err != nil || strings.Contains(unit, ",") { // humanize drops commas: 1,5GiB were 15
		return 0, ErrSyntax
	}
	if unit == "" {
		return number, nil
	}
	if unit[0] == '.' {
		if last := unit[len(unit)-1]; last >= '0' && last <= '9' { // part of a byte
			return 0, ErrSyntax
		}
		n, err := humanize.ParseBytes(s)
		if err != nil || n > math.MaxInt64 {
			return 0, ErrSyntax
		}
		return int64(n), nil
	}
	factor, err := humanize.ParseBytes("1" + unit)
	if err != nil || factor > math.MaxInt64 || number > math.MaxInt64/int64(factor) {
		return 0, ErrSyntax
	}
	return number * int64(factor), nil
}

// units of Text, each larger than those before it.
var units = []struct {
	name  string
	bytes int64
}{
	{"kB", humanize.KByte}, {"KiB", humanize.KiByte}, {"MB", humanize.MByte}, {"MiB", humanize.MiByte},
	{"GB", humanize.GByte}, {"GiB", humanize.GiByte}, {"TB", humanize.TByte}, {"TiB", humanize.TiByte},
	{"PB", humanize.PByte}, {"PiB", humanize.PiByte},
}

// Text writes a size as Parse reads it, exactly, with the largest unit of which it is a whole number.
func Text(n int64) string {
	for i := len(units) - 1; i >= 0 && n != 0; i-- {
		if u := units[i]; n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
