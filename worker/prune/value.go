package prune

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is an amount of bytes, or a part of the file system. The zero Size is none.
type Size struct {
	Bytes   int64
	Percent int // of the size of the file system, 1 to 100; then Bytes is 0
}

// maxSize bounds sizes: what is larger is a mistake.
const maxSize = 1 << 60

// units of a Size. As on disks a GB is 10^9 bytes, and a GiB is 2^30.
var units = []struct {
	name  string
	bytes int64
}{
	{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15},
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50},
}

// ParseSize reads "20%", a number of bytes, or a number with a unit, such as "10GB", "1.5 GiB". The case of
// letters does not matter.
func ParseSize(text string) (Size, error) {
	number, unit := splitUnit(text)
	if number == "" {
		return Size{}, fmt.Errorf("%q is no size: it is a number with a unit such as GB or %%", text)
	}
	if unit == "%" {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > 100 {
			return Size{}, fmt.Errorf("%q is no part of a file system: that is 1%% to 100%%", text)
		}
		return Size{Percent: n}, nil
	}
	factor := int64(0)
	for _, u := range units {
		if strings.EqualFold(u.name, unit) || unit == "" && u.bytes == 1 {
			factor = u.bytes
		}
	}
	if factor == 0 {
		return Size{}, fmt.Errorf("%q has the unknown unit %q", text, unit)
	}
	n, err := multiply(number, factor)
	if err != nil {
		return Size{}, fmt.Errorf("%q is no size: %w", text, err)
	}
	return Size{Bytes: n}, nil
}

// splitUnit divides a number from its unit. Digits and one point are a number; "" otherwise.
func splitUnit(text string) (number, unit string) {
	text = strings.TrimSpace(text)
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(text)
	}
	return text[:end], strings.TrimLeft(text[end:], " ")
}

// multiply is number times factor. Exact if the number is whole; otherwise the result is rounded down.
func multiply(number string, factor int64) (int64, error) {
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		switch {
		case n == 0:
			return 0, errZero
		case n > maxSize/factor:
			return 0, errTooLarge
		}
		return n * factor, nil
	}
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && n*float64(factor) > maxSize:
		return 0, errTooLarge
	case err != nil || math.IsNaN(n):
		return 0, errors.New("it has no number")
	case n*float64(factor) < 1:
		return 0, errZero
	}
	return int64(n * float64(factor)), nil
}

var (
	errZero     = errors.New("0 is no bound; leave it out instead")
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
	best := units[0]
	for _, u := range units {
		if s.Bytes != 0 && s.Bytes%u.bytes == 0 && u.bytes > best.bytes {
			best = u
		}
	}
	return fmt.Sprint(s.Bytes/best.bytes, best.name)
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
	for i := len(units) - 1; i > 0; i-- {
		if u := units[i]; u.name[1] == 'B' && (n >= u.bytes || -n >= u.bytes) {
			return fmt.Sprintf("%.3g %s", float64(n)/float64(u.bytes), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// Duration is a length of time.
type Duration time.Duration

// maxDuration bounds durations, so that one in days fits.
const maxDuration = 100 * 365 * 24 * time.Hour

// ParseDuration reads what time.ParseDuration reads, with days in front ("60d", "1d12h"), or a number of
// seconds.
func ParseDuration(text string) (Duration, error) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return checkDuration(text, n, time.Second, 0)
	}
	if days, rest, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 64)
		more := time.Duration(0)
		if err == nil && rest != "" {
			more, err = time.ParseDuration(rest)
		}
		if err != nil || rest != "" && (rest[0] == '-' || rest[0] == '+') {
			return 0, fmt.Errorf("%q is no duration", text)
		}
		return checkDuration(text, n, 24*time.Hour, more)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration: it is such as 60d, 36h or 90m", text)
	}
	return checkDuration(text, 1, d, 0)
}

func checkDuration(text string, n int64, unit, more time.Duration) (Duration, error) {
	switch {
	case n < 0 || unit < 0:
		return 0, fmt.Errorf("the duration %q is negative", text)
	case unit > 0 && n > int64(maxDuration/unit) || time.Duration(n)*unit > maxDuration-min(more, maxDuration):
		return 0, fmt.Errorf("the duration %q is longer than 100 years", text)
	case n == 0 && more == 0 || unit == 0:
		return 0, fmt.Errorf("the duration %q is no bound; leave it out instead", text)
	}
	return Duration(time.Duration(n)*unit + more), nil
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
		return fmt.Errorf("%q is no number of things", text)
	}
	if n == 0 {
		return errZero
	}
	*c = Count(n)
	return nil
}

// MarshalText is the number.
func (c Count) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(c), 10), nil }
