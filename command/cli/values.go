package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"holdfast/command/size"
	"holdfast/internal/duration"
)

// Sizes and durations are taken in one way by all commands: a bare number is one of bytes, or of
// seconds; with a unit it is that.

var errNegative = errors.New("negative: give 0, or more")

// sizeValue is a flag that is a size.
type sizeValue struct {
	into        *int64
	least, most int64
}

func (v sizeValue) String() string {
	if v.into == nil {
		return "0"
	}
	if *v.into < 0 && v.least >= 0 {
		return "" // not given
	}
	if *v.into < 0 {
		return strconv.FormatInt(*v.into, 10)
	}
	return size.Text(*v.into)
}

// noMost is an upper bound, and those above it, that is none for people.
const noMost = 1 << 62

// Type is what the help calls it.
func (v sizeValue) Type() string { return "size" }

// Set reads it.
func (v sizeValue) Set(s string) error {
	n, err := size.Parse(s)
	if s == "-1" && v.least == -1 {
		n, err = -1, nil
	}
	switch {
	case err != nil && len(s) > 1 && s[0] == '-':
		return errNegative
	case err != nil:
		return err
	case n < v.least && v.least == 1 && v.most >= noMost:
		return errors.New("no bound: give at least 1, or leave the flag out")
	case n < v.least && v.most >= noMost:
		return fmt.Errorf("less than %s: give more, or leave the flag out", size.Text(v.least))
	case n < v.least || n > v.most:
		return fmt.Errorf("outside of %s to %s", size.Text(v.least), size.Text(v.most))
	}
	*v.into = n
	return nil
}

// SizeVar adds a flag that is a size, of at least 0 bytes.
func SizeVar(flags *pflag.FlagSet, into *int64, name string, value int64, usage string) {
	SizeRangeVar(flags, into, name, value, 0, math.MaxInt64, usage)
}

// SizeRangeVar is SizeVar with bounds; a least of -1 lets -1 be given.
func SizeRangeVar(flags *pflag.FlagSet, into *int64, name string, value, least, most int64, usage string) {
	*into = value
	flags.Var(sizeValue{into, least, most}, name, usage)
}

// intSize is a flag that is a size and stands in an int.
type intSize struct {
	sizeValue
	into *int
}

// Set reads it.
func (v intSize) Set(s string) error {
	if err := v.sizeValue.Set(s); err != nil {
		return err
	}
	*v.into = int(*v.sizeValue.into)
	return nil
}

// SizeIntVar is SizeVar for an int.
func SizeIntVar(flags *pflag.FlagSet, into *int, name string, value int, usage string) {
	*into = value
	wide := int64(value)
	flags.Var(intSize{sizeValue{&wide, 0, math.MaxInt}, into}, name, usage)
}

// durationValue is a flag that is a duration.
type durationValue time.Duration

func (v *durationValue) String() string {
	if *v == 0 {
		return "0" // which pflag does not print as a default
	}
	return DurationText(time.Duration(*v))
}

// DurationText writes a duration as DurationVar reads it: 14d, 1h or 1m30s.
func DurationText(d time.Duration) string {
	const day = 24 * time.Hour
	if d > 0 && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// Type is what the help calls it.
func (v *durationValue) Type() string { return "duration" }

// Set reads it.
func (v *durationValue) Set(s string) error {
	d, err := duration.Parse(s)
	if err != nil {
		return err
	}
	if d < 0 {
		return errNegative
	}
	*v = durationValue(d)
	return nil
}

// DurationVar adds a flag that is a duration, of at least 0.
func DurationVar(flags *pflag.FlagSet, into *time.Duration, name string, value time.Duration, usage string) {
	*into = value
	flags.Var((*durationValue)(into), name, usage)
}
