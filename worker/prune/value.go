package prune

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"holdfast/command/size"
	"holdfast/internal/duration"
)

// Size is an amount of bytes, or a part of the file system. The zero Size is none.
type Size struct {
	Bytes   int64
	Percent int // of the size of the file system, 1 to 100; then Bytes is 0
}

// maxSize bounds sizes: what is larger is a mistake.
const maxSize = 1 << 60

// ParseSize reads "20%", a number of bytes, or a number with a unit, such as "10GB", "1.5 GiB". The case of
// letters does not matter.
func ParseSize(text string) (Size, error) {
	text = strings.TrimSpace(text)
	if number, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 7)
		if err != nil || n < 1 || n > 100 {
			return Size{}, fmt.Errorf("invalid part of a file system %q: give 1%% to 100%%", text)
		}
		return Size{Percent: int(n)}, nil
	}
	n, err := size.Parse(text)
	switch {
	case err != nil:
	case n == 0:
		err = errZero
	case n > maxSize:
		err = errTooLarge
	}
	if err != nil {
		return Size{}, fmt.Errorf("invalid size %q: %w", text, err)
	}
	return Size{Bytes: n}, nil
}

var (
	errZero     = errors.New("0 is not a bound; leave it out instead")
	errTooLarge = errors.New("more than 1 EiB")
)

// UnmarshalText is ParseSize.
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSize(string(text))
	return err
}

// MarshalText is String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String is what ParseSize reads, exactly.
func (s Size) String() string {
	if s.Percent != 0 {
		return fmt.Sprintf("%d%%", s.Percent)
	}
	return size.Text(s.Bytes)
}

// Of is how many bytes it is of a file system of a size.
func (s Size) Of(total int64) int64 {
	p := int64(s.Percent)
	return s.Bytes + total/100*p + total%100*p/100
}

// IsZero tells whether it is none.
func (s Size) IsZero() bool { return s == Size{} }

// human is a number of bytes for people, with two or three digits.
func human(n int64) string {
	value, prefix := humanize.ComputeSI(float64(n))
	return fmt.Sprintf("%.3g %sB", value, prefix)
}

// Duration is a length of time.
type Duration time.Duration

// maxDuration bounds durations, so that one in days fits.
const maxDuration = 100 * 365 * 24 * time.Hour

// ParseDuration reads what the flags of the commands take, such as "60d", "1d12h" or a number of seconds, if it is more
// than 0.
func ParseDuration(text string) (Duration, error) {
	d, err := duration.Parse(strings.TrimSpace(text))
	switch {
	case err != nil:
	case d < 0:
		err = errors.New("it is negative")
	case d == 0:
		err = errZero
	case d > maxDuration:
		err = errors.New("longer than 100 years")
	}
	if err != nil {
		return 0, fmt.Errorf("invalid duration %q: %w", text, err)
	}
	return Duration(d), nil
}

// UnmarshalText is ParseDuration.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDuration(string(text))
	return err
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String is what ParseDuration reads, exactly.
func (d Duration) String() string {
	const day = Duration(24 * time.Hour)
	switch {
	case d < day:
		return time.Duration(d).String()
	case d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	}
	return fmt.Sprintf("%dd%v", d/day, time.Duration(d%day))
}

// Count is a number of things.
type Count int64

// UnmarshalText reads a positive whole number.
func (c *Count) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a count", text)
	}
	if n == 0 {
		return errZero
	}
	*c = Count(n)
	return nil
}

// MarshalText is the number.
func (c Count) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(c), 10), nil }
